"""What ranks meet in: the collectives of programs, in their order, to be compared.

Ranks may run different programs by right, since of a group only its members have the collective.
So what is the same is, for each group, the list of its collectives. XLA and gloo compare nothing:
where lists differ, ranks wait or get wrong numbers.

A rank that runs something with collectives for the first time asks the others of its groups what
they have there, and waits for that. What it has run before it only tells.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

COLLECTIVES = (
    *("all-gather", "all-reduce", "all-to-all", "collective-broadcast", "collective-permute"),
    *("ragged-all-to-all", "reduce-scatter"),
)
_COMPUTATION = re.compile(r"^(ENTRY )?%?(\S+) \(.*\{$")
_INSTRUCTION = re.compile(
    rf"^\s*(?:ROOT )?\S+ = (?P<type>.+?) (?P<op>{'|'.join(COLLECTIVES)})(?:-start)?\((?P<rest>.*)$"
)
_CALLED = re.compile(
    r"(?:to_apply|calls|body|condition|true_computation|false_computation)=%?([^\s,)]+)|branch_computations=\{([^}]*)\}"
)
_ROOT = re.compile(r"^\s*ROOT \S+ = \S+ ([\w-]+)\(")
_LAYOUT = re.compile(r"(?<=\])\{[^}]*\}")
_LISTS = re.compile(r"(?:replica_groups|source_target_pairs)=\{((?:\{[\d,]*\},?)*)\}")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_SAID = re.compile(r"(?:dimensions|source_target_pairs)=\{(?:[\d,]|\{[\d,]*\})*\}")
_OURS = re.compile(r'op_name="(?:[^"/]*/)*([a-z_]+\([^"]*\)) (?:native|fallback)')
_GROUPS_OF_OURS = re.compile(r"(?:, )?groups=(?:\w+|\[[\[\],\d]*\])")
_IMPATIENT = {"reduce-scatter"}  # in which gloo gives up on a rank that is 30 s late
_SHOWN = 4000  # characters
_KEPT = 4096  # of each group, for those that ask


class Meeting(NamedTuple):
    """A program's collectives of one group."""

    group: tuple[int, ...]
    what: str  # a hash of them all, and the first of them in words
    awaits: bool  # whether it must not begin before all have come


def has_collectives(text: str) -> bool:
    """Whether a program, given as HLO, meets other ranks."""
    return any(map(_INSTRUCTION.match, text.splitlines()))


def of_program(text: str, rank: int, size: int) -> tuple[Meeting, ...]:
    """The groups that a rank meets in a program, given as HLO, and in what."""
    found: dict[tuple[int, ...], list[str]] = {}
    impatient: set[tuple[int, ...]] = set()
    computations, entry = _computations(text)
    for match in _in_order(computations, entry):
        words = " ".join((match["op"], match["type"], *_attributes(match, computations)))
        for group in _groups(match["rest"], size):
            if rank in group and len(group) > 1:
                found.setdefault(group, []).append(words)
                if match["op"] in _IMPATIENT:
                    impatient.add(group)
    return tuple(
        Meeting(group, what("; ".join(lines)), group in impatient) for group, lines in found.items()
    )


def what(said: str) -> str:
    """Of a meeting: a hash, and words, without layouts and not too many."""
    key = hashlib.sha256(said.encode()).hexdigest()[:16]
    return f"{key} {_LAYOUT.sub('', said)[:_SHOWN]}"


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
    """The lines of each, by name, and the name of the one that is run."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    entry = ""
    for line in text.splitlines():
        if head := _COMPUTATION.match(line):
            lines = found[head[2]] = []
            entry = head[2] if head[1] else entry
        else:
            lines.append(line)
    return found, entry


def _in_order(computations: dict[str, list[str]], name: str) -> Iterator[re.Match[str]]:
    """The collectives of one and of those that it calls, as they are scheduled."""
    for line in computations.get(name, []):
        if match := _INSTRUCTION.match(line):
            yield match
            continue
        for one, several in _CALLED.findall(line):
            for called in (one, *several.split(", ")):
                yield from _in_order(computations, called.lstrip("%"))


def _attributes(match: re.Match[str], computations: dict[str, list[str]]) -> Iterator[str]:
    yield from _SAID.findall(match["rest"])
    if ours := _OURS.search(match["rest"]):  # all that it was called with
        yield "of " + _GROUPS_OF_OURS.sub("", ours[1])
    if called := _CALLED.search(match["rest"]):  # what it reduces with
        yield from (
            root[1] for line in computations.get(called[1], []) if (root := _ROOT.match(line))
        )


def _groups(attributes: str, size: int) -> list[tuple[int, ...]]:
    if iota := _IOTA.search(attributes):
        shape, dims, order = (
            [int(n) for n in part.split(",")] if part else None for part in iota.groups()
        )
        assert shape is not None and dims is not None
        ids = np.arange(int(np.prod(dims))).reshape(dims).transpose(order).reshape(shape)
        return [tuple(row) for row in ids.tolist()]
    lists = _LISTS.search(attributes)
    rows = re.findall(r"\{([\d,]+)\}", lists[1]) if lists else []
    groups = [tuple(int(n) for n in row.split(",")) for row in rows]
    if "source_target_pairs" in attributes:
        return [tuple(sorted({rank for pair in groups for rank in pair}))]
    return groups or [tuple(range(size))]


class Begun:
    """What this rank has met others in, from the first on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: dict[tuple[int, ...], dict[int, str]] = {}
        self._counts: dict[tuple[int, ...], int] = {}

    def begin(self, meeting: Meeting) -> int:
        """Its number in its group."""
        with self._lock:
            number = self._counts.get(meeting.group, 0)
            self._counts[meeting.group] = number + 1
            kept = self._begun.setdefault(meeting.group, {})
            kept[number] = meeting.what
            kept.pop(number - _KEPT, None)
            return number

    def at(self, group: tuple[int, ...], number: int) -> str | None:
        """What it was; None if this rank has not come so far (or no longer knows)."""
        with self._lock:
            return self._begun.get(group, {}).get(number)
