"""What the extension module imports by this name, until it is handed the functions."""

from torch_xla_cc._threads.compile_bridge import refuse, state

__all__ = ["refuse", "state"]
