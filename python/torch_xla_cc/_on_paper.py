"""Whether the world of torch.distributed is on paper: see distributed/_paper.py."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_is_open = False


def on_paper() -> bool:
    """Whether it is. Then nothing runs that has a collective in it."""
    return _is_open


@contextlib.contextmanager
def world_on_paper() -> Iterator[None]:
    """It is, for a block."""
    global _is_open
    _is_open = True
    try:
        yield
    finally:
        _is_open = False
