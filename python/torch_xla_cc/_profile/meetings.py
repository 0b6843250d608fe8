"""Which of the ranks' collectives met, who came last, and how long the others waited."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from .._hlo.collectives import Collective
from .._hlo.traffic import BY_PAIRS, participants
from .ops import Op, Ran

_NOBODY = (-1,)  # in place of a group
# A rank may be done with these before others begin: it only gives.
_ONE_WAY = BY_PAIRS | {"collective-broadcast"}


@dataclass(frozen=True)
class Meeting:
    """One collective, once, among the ranks of a group."""

    ops: tuple[Op, ...]  # by rank

    @property
    def last(self) -> Op:
        """Who came last."""
        return max(self.ops, key=lambda op: op.begins_ns)

    def waited_ns(self, op: Op) -> int:
        """How long one of them was there before the last that it needs."""
        needed = self._needed(op)
        came = max((other.begins_ns for other in self.ops if other.rank in needed), default=0)
        return max(0, min(came, op.ends_ns) - op.begins_ns)

    def _needed(self, op: Op) -> set[int]:
        collective = op.collective
        if collective is None:
            return {other.rank for other in self.ops}
        if collective.opcode in BY_PAIRS:
            return {a for a, b in collective.pairs or () if b == op.rank}
        if collective.opcode == "collective-broadcast":
            return {self.ops[0].rank}
        return {other.rank for other in self.ops}


def meetings(ran: Ran, world: int) -> tuple[list[Meeting], list[Op]]:
    """Of what ran, and on the host; and the collectives of which the others' part is not there.

    Each group has the same row of collectives on all of its ranks, but a trace may begin or end
    within it.
    """
    rows: dict[tuple[int, ...], dict[int, list[Op]]] = defaultdict(lambda: defaultdict(list))
    for op in ran.ops:
        if (collective := op.collective) is not None:
            rows[_group(collective, op.rank, world)][op.rank].append(op)
    found = [Meeting(some) for some in ran.on_host]
    alone: list[Op] = []
    for group, by_rank in rows.items():
        whole = group != _NOBODY and len(by_rank) == len(group)
        some = list(_met(by_rank)) if whole else []
        met = {id(op) for one in some for op in one.ops}
        alone += [op for ops in by_rank.values() for op in ops if id(op) not in met]
        found += some
    return sorted(found, key=lambda one: one.last.begins_ns), alone


def _group(collective: Collective, rank: int, world: int) -> tuple[int, ...]:
    """The ranks that it is among, for this one."""
    if collective.opcode in BY_PAIRS:
        return tuple(range(world))
    return next((g for g in participants(collective, world) if rank in g), _NOBODY)


def _met(by_rank: dict[int, list[Op]]) -> Iterator[Meeting]:
    left = {rank: list(reversed(some)) for rank, some in sorted(by_rank.items())}
    while all(left.values()):
        heads = [some[-1] for some in left.values()]
        if _fit(heads):
            yield Meeting(tuple(heads))
            for some in left.values():
                some.pop()
        else:  # the first of them to end is of one that the others' traces do not have
            left[min(heads, key=lambda op: op.ends_ns).rank].pop()


def _fit(heads: list[Op]) -> bool:
    """Whether they may have met."""
    kinds = {(c.opcode, c.operand_bytes) for op in heads if (c := op.collective) is not None}
    of_one_program = len({op.program.name for op in heads}) == 1
    if len(kinds) != 1 or (of_one_program and len({op.name for op in heads}) > 1):
        return False
    came = max(op.begins_ns for op in heads)
    return next(iter(kinds))[0] in _ONE_WAY or all(op.ends_ns >= came for op in heads)
