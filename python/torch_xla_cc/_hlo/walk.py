"""A walk through a graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def reached(begin: Iterable[T], further: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """These, and what is reached from them: each once."""
    seen: set[T] = set()
    pending = list(begin)
    while pending:
        one = pending.pop()
        if one not in seen:
            seen.add(one)
            yield one
            pending += further(one)
