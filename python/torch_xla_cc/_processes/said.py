"""What ranks say of themselves in a round (rounds.py), as numbers."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

_WORDS = 17  # of 60 calls each: as many as may be pending
_BITS = 60


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
