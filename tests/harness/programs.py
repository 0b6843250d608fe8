"""How many programs this process has run and compiled, counted where it hands them to its device.

The metric ExecuteTime counts them on another thread, and some only after what follows.
"""

from torch_xla.debug import metrics


def compiled() -> int:
    """By this process so far."""
    return metrics.counter_value("UncachedCompile") or 0


def ran() -> int:
    """Those too that it had compiled before."""
    return compiled() + (metrics.counter_value("CachedCompile") or 0)
