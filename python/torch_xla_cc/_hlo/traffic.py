"""How many bytes a collective moves: between ranks, and to each of them.

Bytes are those of the algorithm that sends least. With n ranks in a group, an operand of B bytes on
each of them:

  opcode                 from each rank to each other of its group   received by each
  all-gather             B                                           (n - 1) B
  reduce-scatter         B / n                                       (n - 1) B / n
  all-reduce             2 B / n                                     2 (n - 1) B / n
  all-to-all             B / n                                       (n - 1) B / n
  collective-broadcast   B, from the first rank                      B; nothing by the first
  ragged-all-to-all      B / n, as if parts were of one size: what they are is not in the program
  collective-permute, send, recv: B, from each source to its target
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Protocol

from .instruction import Groups

BY_PAIRS = frozenset({"collective-permute", "recv", "send"})


class Transfer(Protocol):
    """What of a collective decides about bytes."""

    @property
    def opcode(self) -> str: ...
    @property
    def operand_bytes(self) -> int: ...
    @property
    def groups(self) -> Groups | None: ...
    @property
    def pairs(self) -> tuple[tuple[int, int], ...] | None: ...


def participants(collective: Transfer, world: int) -> tuple[tuple[int, ...], ...]:
    """The groups, where "all" is written out."""
    return collective.groups or (tuple(range(world)),)


def share(opcode: str, size: int) -> Fraction:
    """Of each byte of the operand, what goes from a rank to each other of its group."""
    if opcode in ("all-gather", "collective-broadcast", *BY_PAIRS):
        return Fraction(1)
    return Fraction(2 if opcode == "all-reduce" else 1, size)


def each_to_each(collective: Transfer, size: int) -> Fraction:
    """Bytes from a rank to each other rank of its group of that size."""
    return collective.operand_bytes * share(collective.opcode, size)


def flows(collective: Transfer, world: int) -> Iterator[tuple[int, int, Fraction]]:
    """(source, target, bytes) for each two ranks that it moves data between."""
    if collective.opcode in BY_PAIRS:
        if collective.opcode == "recv":
            return  # counted where it is sent
        amount = each_to_each(collective, 2)
        yield from ((a, b, amount) for a, b in collective.pairs or () if a != b)
        return
    for group in participants(collective, world):
        amount = each_to_each(collective, len(group))
        sources = group[:1] if collective.opcode == "collective-broadcast" else group
        yield from ((a, b, amount) for a in sources for b in group if a != b)


def received(collective: Transfer, world: int) -> Fraction:
    """The bytes that come to the rank that gets most."""
    if collective.opcode in BY_PAIRS:
        to = Counter(b for _, b, _ in flows(collective, world))
        return each_to_each(collective, 2) * max(to.values(), default=0)
    size = max(len(group) for group in participants(collective, world))
    if collective.opcode == "collective-broadcast":
        return each_to_each(collective, size) if size > 1 else Fraction(0)
    return each_to_each(collective, size) * (size - 1)
