"""What ranks say of themselves in a round (rounds.py), as numbers."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

_WORDS = 17  # of 60 calls each: as many as may be pending
_BITS = 60
# After how many ms without being served all give up, if a rank that is behind waits for a peer
# beside the graph; and if it does nothing, which may be such a wait, or a slow disk. But what all
# ranks have to call, others wait for, as with any backend.
_WAITS_MS = 1000
_IDLE_MS = 10000


class Kind(IntEnum):
    """Why a rank is in a round."""

    STEPS = 1  # it would run all that it has
    READS = 2
    SETTLES = 3  # it would have its calls run, before something that runs by itself
    PASSES = 4  # it is about to make its next call
    IDLE = 5  # it does nothing with tensors
    WAITS = 6  # the same, for a peer, beside the graph

    @property
    def wants(self) -> bool:
        """Whether it waits for a round, and does not only answer in one."""
        return self <= Kind.SETTLES


class Said(NamedTuple):
    """What a rank says in a round."""

    kind: Kind
    made: int  # calls
    chain: int  # which they are
    graph: int = 0  # what it would run as a whole: a hash
    others: int = 0  # tensors that are not in that
    waited: int = 0  # ms, if it would run something


class Needs(NamedTuple):
    """The calls that have to run for a rank to go on."""

    wanted: frozenset[int] = frozenset()  # for what it wants
    of_all: frozenset[int] = frozenset()  # for all that it has

    def packed(self) -> list[int]:
        """As numbers of 60 bits."""
        words = [0] * (2 * _WORDS)
        for first, calls in ((0, self.wanted), (_WORDS, self.of_all)):
            for call in calls:
                words[first + call // _BITS] |= 1 << call % _BITS
        return words


def unpacked(words: list[int]) -> Needs:
    """What was packed."""
    found: list[set[int]] = [set(), set()]
    for i, word in enumerate(words):
        place = i % _WORDS * _BITS
        found[i // _WORDS] |= {place + bit for bit in range(_BITS) if word >> bit & 1}
    return Needs(frozenset(found[0]), frozenset(found[1]))


def number_of(name: bytes) -> int:
    """A hash as a number that gloo carries."""
    return int.from_bytes(name[:7], "little") ^ int.from_bytes(name[7:14], "little")


def end_of(said: Said, needs: Needs) -> int:
    """How many calls all have to have made before a rank can be served."""
    return said.made if said.kind == Kind.STEPS else max(needs.wanted, default=-1) + 1


def is_stuck(all_said: list[Said], ends: list[int], lack: list[bool], limit_ms: float) -> bool:
    """Whether a rank that is behind will not come to make its calls before others go on.

    Not where these `lack` a call of all ranks: without it they cannot go on at all. A step can.
    `limit_ms` is for how long the world waits, at the end of which it is lost.
    """
    waits = [
        (said.waited, end)
        for said, end, lacks in zip(all_said, ends, lack, strict=True)
        if said.kind == Kind.STEPS or (said.kind.wants and not lacks)
    ]
    if not waits:
        return False
    waited = max(waited for waited, _ in waits)
    behind = {said.kind for said in all_said if said.made < min(end for _, end in waits)}
    return (Kind.WAITS in behind and waited > _WAITS_MS) or (
        Kind.IDLE in behind and waited > min(_IDLE_MS, limit_ms / 2)
    )
