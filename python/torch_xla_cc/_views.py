"""What the extension module imports by this name, until it is handed the functions."""

from torch_xla_cc._ops.views import place

__all__ = ["place"]
