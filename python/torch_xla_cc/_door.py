"""What the extension module imports by this name, until it is handed the functions."""

from torch_xla_cc._threads.read_hooks import default_rank, drop, run_graph, run_pending

__all__ = ["default_rank", "drop", "run_graph", "run_pending"]
