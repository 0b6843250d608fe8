"""What torch.cuda is for CUDA devices: as `torch.xla`, for code that asks for a device's module.

Streams do nothing. In XLA's graph an operation comes after those whose results it takes.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Iterator

import torch_xla
from torch_xla.core import xla_model

from torch_xla_cc._runtime import device_tensors, seeds

_initialized = True  # torch.utils.checkpoint keeps the random state only if it finds this


_recorded: weakref.WeakSet[Event] = weakref.WeakSet()  # to tell the time, and not waited for


class Event:
    """A point in a stream. One that is to tell the time knows when the host came there, and when
    it first found that all before it has run.
    """

    def __init__(self, enable_timing: bool = False, *_: object, **__: object) -> None:
        self._tells_time = enable_timing
        self._at_s: float | None = None
        self._has_run_s: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        if self._tells_time:
            self._at_s, self._has_run_s = time.perf_counter(), None
            _recorded.add(self)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from here to where what was before the other event had run.

        It must have been waited for, as those of CUDA: by torch.cuda.synchronize(), or itself.
        """
        if not (self._tells_time and end_event._tells_time):
            raise ValueError("elapsed_time: both events must be made with enable_timing=True")
        if self._at_s is None or end_event._at_s is None:
            raise ValueError("elapsed_time: both events must be recorded before")
        if end_event._has_run_s is None:
            raise RuntimeError(
                "elapsed_time: what is before the end event may not have run yet. Call "
                "torch.cuda.synchronize(), or its synchronize(), before"
            )
        return 1e3 * (end_event._has_run_s - self._at_s)

    def wait(self, stream: Stream | None = None) -> None:
        pass

    def query(self) -> bool:
        self.synchronize()
        return True

    def synchronize(self) -> None:
        """Nothing, but if it is to tell the time: others are for the order of operations."""
        if self._at_s is not None and self._has_run_s is None:
            self._wait()

    def _wait(self) -> None:
        synchronize()


class EventOfHost(Event):
    """The same where the device is the CPU, which has nothing pending."""

    def _wait(self) -> None:
        all_has_run()


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
    all_has_run()


def all_has_run(*_: object, **__: object) -> None:
    """Events that were recorded hear of it."""
    now = time.perf_counter()
    while _recorded:
        _recorded.pop()._has_run_s = now


def empty_cache() -> None:
    """Nothing: XLA's allocator keeps no memory that it does not need."""


def memory_summary(device: object = None) -> str:
    """Nothing: not every XLA device says what is in its memory."""
    return ""


def get_rng_state(device: object = None) -> int:
    """The seed of what is drawn next. (A number, and not a tensor of bytes as of CUDA.)"""
    return seeds.get()


def set_rng_state(new_state: int, device: object = None) -> None:
    """Set the seed of what is drawn next."""
    seeds.put(int(new_state))
