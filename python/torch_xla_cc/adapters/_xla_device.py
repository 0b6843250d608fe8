"""What torch.cuda is for CUDA devices: as `torch.xla`, for code that asks for a device's module.

Streams do nothing. In XLA's graph an operation comes after those whose results it takes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch_xla
from torch_xla.core import xla_model

from torch_xla_cc._runtime import device_tensors

_initialized = True  # torch.utils.checkpoint keeps the random state only if it finds this


class Event:
    """A point in a stream, of which it knows when the host came there."""

    def __init__(self, *_: object, **__: object) -> None:
        self._at_s: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        self._at_s = time.perf_counter()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from the host's call of `record` to that of another's.

        Of what ran in between if `torch.cuda.synchronize()` was called before both.
        """
        if self._at_s is None or end_event._at_s is None:
            raise RuntimeError("elapsed_time: both events must be recorded before")
        return 1e3 * (end_event._at_s - self._at_s)

    def wait(self, stream: Stream | None = None) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


class Stream:
    """An order of operations."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def wait_stream(self, stream: Stream) -> None:
        pass

    def wait_event(self, event: Event) -> None:
        pass

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


_STREAM = Stream()


def current_stream(device: object = None) -> Stream:
    return _STREAM


def default_stream(device: object = None) -> Stream:
    return _STREAM


@contextlib.contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    yield


@contextlib.contextmanager
def device(device: object) -> Iterator[None]:
    yield


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def device_count() -> int:
    """One: a rank has one device."""
    return 1


def current_device() -> int:
    return torch_xla.device().index or 0


def set_device(device: object) -> None:
    """Nothing: the rank's device is the one that torch_xla gives it."""


def synchronize(device: object = None) -> None:
    """Run what is pending, and wait for it.

    Not a step: one rank alone may call it, and a step changes the seed of random numbers.
    """
    device_tensors.run_live(torch_xla.device().index)
    xla_model.wait_device_ops()


def empty_cache() -> None:
    """Nothing: XLA's allocator keeps no memory that it does not need."""


def memory_summary(device: object = None) -> str:
    """Nothing: not every XLA device says what is in its memory."""
    return ""


def get_rng_state(device: object = None) -> int:
    """The seed of what is drawn next. (A number, and not a tensor of bytes as of CUDA.)"""
    return int(xla_model.get_rng_state())


def set_rng_state(new_state: int, device: object = None) -> None:
    """Set the seed of what is drawn next."""
    xla_model.set_rng_state(new_state)
