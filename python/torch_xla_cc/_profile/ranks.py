"""Which rank each process of a job was, where its trace does not say so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .xplane import Space, TraceError

_NAMED = re.compile(r"rank[-_]?(\d{1,6})", re.IGNORECASE)


@dataclass(frozen=True)
class Numbers:
    """The rank of each trace."""

    ranks: tuple[int, ...]
    are_guessed: bool  # no folder says which: they are in the order of their paths


def numbers(spaces: Sequence[Space]) -> Numbers:
    """By the folders rank0, rank1, ... that the files are in."""
    named = [_of(space.path) for space in spaces]
    found = [rank for rank in named if rank is not None]
    if not found:
        in_order = sorted(range(len(spaces)), key=lambda one: _natural(spaces[one].path))
        return Numbers(tuple(in_order.index(one) for one in range(len(spaces))), len(spaces) > 1)
    for space, rank in zip(spaces, named, strict=True):
        if rank is None:
            raise TraceError(
                f"{space.path}: no folder above it says which rank this is, as rank{found[0]} does "
                "of another trace. Trace each rank into a folder rank0, rank1, ..."
            )
        if found.count(rank) > 1:
            raise TraceError(
                f"{space.path}: there is another trace of rank {rank} at the same time. Trace each "
                "rank into a folder of its own: rank0, rank1, ..."
            )
    return Numbers(tuple(found), False)


def _of(path: Path) -> int | None:
    """The folder next to the file counts."""
    found = [int(part[1]) for name in path.parts[:-1] if (part := _NAMED.fullmatch(name))]
    return found[-1] if found else None


def _natural(path: Path) -> list[tuple[int, str]]:
    """So that node10 comes after node9."""
    return [(int(part or 0), text) for text, part in re.findall(r"(\D+)(\d*)", str(path))]
