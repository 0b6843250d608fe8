"""Traces of torch_xla's profiler: the collectives in them, see docs/profile.md."""
