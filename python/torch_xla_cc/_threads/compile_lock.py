"""torch.compile's lock, while a rank waits for its peers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch_xla_cc._runtime.private import convert_frame


@contextlib.contextmanager
def opened() -> Iterator[None]:
    """Without torch.compile's lock, which peers may need to come, should this thread have it.

    It has where torch_xla's bridge calls an operator that reads what a collective gives.
    """
    lock: Any = convert_frame.compile_lock
    if not lock._is_owned():
        yield
        return
    held = None
    try:
        held = lock._release_save()
        yield
    finally:
        if held is not None:
            lock._acquire_restore(held)
