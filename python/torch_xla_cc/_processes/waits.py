"""Threads of this rank that have nothing to do with its tensors for now."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from torch_xla_cc import _C
from torch_xla_cc._processes.said import Kind

_waits: list[int] = []  # threads that wait for peers outside of calls
_listen: list[int] = []  # threads that listen


@contextlib.contextmanager
def _among(threads: list[int]) -> Iterator[None]:
    """This thread is one of those; another may have its number later."""
    thread = threading.get_ident()
    threads.append(thread)
    try:
        yield
    finally:
        threads.remove(thread)


def waiting() -> contextlib.AbstractContextManager[None]:
    """This rank waits for others, which need not have made the calls that it has made."""
    return _among(_waits)


def listening() -> contextlib.AbstractContextManager[None]:
    """This thread does nothing else."""
    return _among(_listen)


def does_nothing(thread: int) -> bool:
    """Whether it waits or listens, in code of this package."""
    return thread in _waits or thread in _listen


def idle_kind() -> Kind:
    """Of a rank that does nothing with tensors."""
    return Kind.WAITS if _waits or _C.waits_for_peers() else Kind.IDLE
