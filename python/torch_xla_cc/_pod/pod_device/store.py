"""Buffers: arrays of jaxlib, what will be one, or why there is none; and the segments shared."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import types
from .errors import RESOURCE_EXHAUSTED, Refused
from .jaxlib_xla import xla

_COPIES = xla.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
_SHARES = xla.HostBufferSemantics.ZERO_COPY


class Slot:
    """What a buffer's number stands for."""

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self.array: Any = None
        self.error: BaseException | None = None
        self.counted = self.freed = False  # of Accounts

    def ready(self) -> bool:
        """Whether it can be used without waiting."""
        if self.array is None:
            return self.error is not None
        return bool(self.array.is_ready())

    def get(self) -> Any:
        """The array; raises why there is none."""
        if self.error is not None:
            raise self.error
        return self.array


class Segments:
    """Memory of the rank that this process has as well."""

    def __init__(self) -> None:
        self._maps: dict[int, mmap.mmap | OSError] = {}

    def add(self, number: int, size: int, descriptor: int) -> None:
        """One that was received."""
        try:
            self._maps[number] = mmap.mmap(descriptor, size)
        except OSError as error:  # nobody waits for an answer
            self._maps[number] = error
        finally:
            os.close(descriptor)

    def drop(self, number: int) -> None:
        """It is unmapped when no array uses it."""
        del self._maps[number]

    def bytes(self, number: int, size: int) -> np.ndarray[Any, Any]:
        """Its first bytes."""
        segment = self._maps[number]
        if isinstance(segment, OSError):
            raise Refused(
                RESOURCE_EXHAUSTED, f"{size} bytes of shared memory cannot be mapped: {segment}"
            )
        return np.frombuffer(segment, np.uint8, size)


def copied(client: Any, kind: int, dims: Sequence[int], content: np.ndarray[Any, Any]) -> Any:
    """An array of these bytes."""
    array = content.view(types.dtype_of(kind)).reshape(dims)
    return client.buffer_from_pyval(array, client.local_devices()[0], True, _COPIES)


def duplicate(client: Any, array: Any) -> Any:
    """Another array with the same content."""
    host, _ = array._single_device_array_to_np_array_did_copy()
    return client.buffer_from_pyval(host, client.local_devices()[0], True, _COPIES)


def shared(
    client: Any,
    kind: int,
    dims: Sequence[int],
    content: np.ndarray[Any, Any],
    released: Callable[[], None],
) -> Any:
    """The same of a segment, used as it lies; `released` is called when that has ended."""
    array = content.view(types.dtype_of(kind)).reshape(dims)
    weakref.finalize(array, released).atexit = False
    return client.buffer_from_pyval(array, client.local_devices()[0], False, _SHARES)


def read(array: Any, offset: int, size: int) -> memoryview:
    """Bytes of an array that is ready: valid while it is neither freed nor donated."""
    if size == 0:
        return memoryview(b"")
    address = array.unsafe_buffer_pointer() + offset
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


class Accounts:
    """How many bytes the buffers have that were made and not freed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = self.most = 0

    def made(self, slot: Slot) -> None:
        """It has its array."""
        with self._lock:
            if not slot.freed:
                slot.counted = True
                self.now += slot.size
                self.most = max(self.most, self.now)

    def freed(self, slot: Slot) -> None:
        """It is not needed any more, which may come before it is made, or be said twice."""
        with self._lock:
            slot.freed = True
            if slot.counted:
                slot.counted = False
                self.now -= slot.size
