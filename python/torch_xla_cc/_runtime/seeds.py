"""The seed of the device's random numbers, also while there is no device yet.

Programs seed before they make a world, and torch_xla's runtime has to know of the other processes
when it starts, on TPU and on the pod. So a seed is kept for it until then.
"""

from __future__ import annotations

from torch_xla.core import xla_model

from torch_xla_cc._runtime import forked
from torch_xla_cc._runtime.private import XLAC

_OF_A_NEW_DEVICE = 101  # torch_xla's own
_kept: int | None = None


def _has_device() -> bool:
    if forked.with_runtime():
        raise RuntimeError(
            "the random state of an XLA device is asked for in a process that was forked from one "
            "which uses the device. Start processes by the start method 'spawn'"
        )
    return bool(XLAC._xla_runtime_is_initialized())


def begin() -> None:
    """The device is about to be used, or is there: it gets what was kept for it."""
    global _kept
    if _kept is not None and not forked.with_runtime():
        xla_model.set_rng_state(_kept)
        _kept = None


def get() -> int:
    """That of what is drawn next, of 64 bits without a sign."""
    if not _has_device():
        return _OF_A_NEW_DEVICE if _kept is None else _kept
    begin()
    return int(xla_model.get_rng_state())


def put(seed: int) -> None:
    """Set it."""
    global _kept
    has_device = _has_device()
    _kept = seed
    if has_device:
        begin()
