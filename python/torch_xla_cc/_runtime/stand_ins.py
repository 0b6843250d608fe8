"""What a computation that is for a device elsewhere is run as, where one of its results is read."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Protocol


class StandIns(Protocol):
    """Of the computations that a thread traces."""

    def of(self, module: bytes) -> object:
        """What stands in the graph for a serialized HloModuleProto: a computation of torch_xla."""

    def undone(self, traced: bytes) -> bytes:
        """A traced module with what the stand-ins stand for."""


class _Thread(threading.local):
    stand_ins: StandIns | None = None


_thread = _Thread()


def of(computation: object, module: bytes) -> object:
    """What this thread puts into its graph for a computation, which is of `module`."""
    return computation if _thread.stand_ins is None else _thread.stand_ins.of(module)


def undone(traced: bytes) -> bytes:
    """A module that this thread has traced, with what it is for the device elsewhere."""
    return traced if _thread.stand_ins is None else _thread.stand_ins.undone(traced)


@contextlib.contextmanager
def standing(stand_ins: StandIns) -> Iterator[None]:
    """Have them stand in for what this thread traces."""
    before, _thread.stand_ins = _thread.stand_ins, stand_ins
    try:
        yield
    finally:
        _thread.stand_ins = before
