"""What ranks meet in: the collectives of programs, in their order, to be compared.

Ranks may run different programs by right: of a group only its members have the collective, and
where a rank reads a result its program ends. So what is the same is, for each group, the row of its
collectives; and from each rank to each other the row of those that send messages, as these come in
the order in which they were sent, whatever groups they are of. XLA and gloo compare nothing: where
rows differ, ranks wait or get wrong numbers.

A permute may be a message of torch.distributed, from one rank to another, which is in no row of a
group: its sender does not wait, and messages in the two directions have no order between them.

A rank that runs something with collectives for the first time asks what the others of its groups
have begun, and waits for that. What it has run before it only tells.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .errors import UNIMPLEMENTED, Refused

COLLECTIVES = (
    *("all-gather", "all-reduce", "all-to-all", "collective-broadcast", "collective-permute"),
    *("ragged-all-to-all", "reduce-scatter"),
)
_COMPUTATION = re.compile(r"^(ENTRY )?%?(\S+) \(.*\{$")
INSTRUCTION = re.compile(
    rf"^\s*(?:ROOT )?\S+ = (?P<type>.+?) (?P<op>{'|'.join(COLLECTIVES)})(?:-start)?\((?P<rest>.*)$"
)
_CALLED = re.compile(
    r"(to_apply|calls|body|condition|true_computation|false_computation|branch_computations)="
    r"(?:%?([^\s,){]+)|\{([^}]*)\})"
)
_ROOT = re.compile(r"^\s*ROOT \S+ = \S+ ([\w-]+)\(")
_METADATA = re.compile(r", metadata=\{[^}]*\}")
_LAYOUT = re.compile(r"(?<=\])\{[^}]*\}")
_LISTS = re.compile(r"(?:replica_groups|source_target_pairs)=\{((?:\{[\d,]*\},?)*)\}")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_SAID = re.compile(r"(?:dimensions|source_target_pairs)=\{(?:[\d,]|\{[\d,]*\})*\}")
_OURS = re.compile(r'op_name="(?:[^"/]*/)*([a-z_]+\([^"]*\)) (?:native|fallback)')
_MESSAGE = re.compile(r'source_file="group [^"]*\(a message\)"')  # graph/messages.cc
_MARK = "message "  # its hash begins so
_GROUPS_OF_OURS = re.compile(r"(?:, )?groups=(?:\w+|\[[\[\],\d]*\])")
_IN_GROUP = re.compile(r'source_file="group ([^"]*)"')  # torch_xla_cc/graph/planning.h
_NUMBERED = re.compile(
    r'"[^"]*"|' r"(?<![\w.])%?([A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*)\.(\d+)(?![\w.])"
)
_SHOWN = 300  # characters
PROGRAMS = 1024  # that a rank has said and names by their keys; of another it says all again

Group = tuple[int, ...]
Row = tuple[Group, tuple[str, ...]]  # hashes of collectives, in their order


class Calls(NamedTuple):
    """The collectives of a program that a rank is in."""

    groups: tuple[Row, ...]
    words: dict[str, str]  # of hashes
    links: tuple[Row, ...] = ()  # from a rank to another, in that order: its sender, who receives

    def total(self) -> int:
        """How many there are."""
        messages = (h for _, hashes in self.links for h in hashes if h.startswith(_MARK))
        return sum(len(hashes) for _, hashes in self.groups) + sum(1 for _ in messages)

    def has_messages(self) -> bool:
        """Whether some are of two ranks, one of which does not wait for the other."""
        return any(hashed.startswith(_MARK) for hashed in self.words)

    def has(self, kind: str) -> bool:
        """Whether one of them is of this kind."""
        return any(what.startswith(kind) for what in self.words.values())

    def is_impatient(self) -> bool:
        """Whether gloo gives up in one on a rank that is 30 s late: they do not meet before it."""
        rows = (["", *(self.words[hashed] for hashed in hashes)] for _, hashes in self.groups)
        return any(
            what.startswith("reduce-scatter") and not before.startswith("all-reduce u32[] ")
            for row in rows
            for before, what in itertools.pairwise(row)
        )

    def text(self) -> str:
        """A line."""
        places = {hashed: place for place, hashed in enumerate(self.words)}
        groups, links = (
            [(ranks, [places[h] for h in hashes]) for ranks, hashes in rows]
            for rows in (self.groups, self.links)
        )
        return json.dumps([groups, links, list(self.words.items())], separators=(",", ":"))

    def key(self) -> str:
        """The same for the same collectives."""
        return hashlib.sha256(self.text().encode()).hexdigest()[:24]


class Recent:
    """The keys that a rank has named last: it and rank 0, which hears them, keep the same."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[str, None] = {}  # the last used last

    def use(self, key: str) -> tuple[bool, str | None]:
        """Whether it was there, and which is not any more."""
        known = key in self._kept
        self._kept.pop(key, None)
        self._kept[key] = None
        if len(self._kept) <= self._most:
            return known, None
        oldest = next(iter(self._kept))
        del self._kept[oldest]
        return known, oldest


def calls_of(text: str) -> Calls:
    """Of its text."""
    *rows, words = json.loads(text)
    hashes = [hashed for hashed, _ in words]
    groups, links = (
        tuple((tuple(ranks), tuple(hashes[i] for i in places)) for ranks, places in each)
        for each in rows
    )
    return Calls(groups, dict(words), links)


def has_collectives(text: str) -> bool:
    """Whether a program, given as HLO, meets other ranks."""
    return any(map(INSTRUCTION.match, text.splitlines()))


def of_program(text: str, rank: int, size: int) -> Calls:
    """What a rank meets others in, in a program, given as HLO."""
    groups: dict[Group, list[str]] = {}
    links: dict[Group, list[str]] = {}
    words: dict[str, str] = {}
    computations, entry = _computations(text)
    for match, _ in _in_order(computations, entry):
        said = " ".join((match["op"], match["type"], *_attributes(match, computations)))
        hashed = _hashed(said)
        message = _MESSAGE.search(match["rest"]) is not None
        if message:
            hashed = _MARK + hashed
        for group in _groups(match["rest"], size):
            if rank in group and len(group) > 1:
                if not message:
                    groups.setdefault(group, []).append(hashed)
                words.setdefault(hashed, _shown(said))
                for link in _links(match, group, rank):
                    links.setdefault(link, []).append(hashed)
    rows, sent = (
        tuple((ranks, tuple(hashes)) for ranks, hashes in found.items())
        for found in (groups, links)
    )
    return Calls(rows, words, sent)


def of_instructions(text: str, size: int) -> Calls:
    """What all ranks have to run, where they are to run one program: each instruction of it."""
    lines = [line.strip() for line in text.splitlines() if " = " in line]
    # A name ends in a number, which counts what was made before it, also what is not in there.
    numbers: dict[str, int] = {}

    def in_order(match: re.Match[str]) -> str:
        if match[1] is None:  # what is said in quotes
            return match[0]
        return f"{match[1]}.{numbers.setdefault(match[0].lstrip('%'), len(numbers))}"

    hashes = [_hashed(_NUMBERED.sub(in_order, _METADATA.sub("", line))) for line in lines]
    words = {
        hashed: _shown(f"instruction {line}") for hashed, line in zip(hashes, lines, strict=True)
    }
    return Calls(((tuple(range(size)), tuple(hashes)),), words)


def cliques(text: str, rank: int, size: int) -> tuple[Group, ...]:
    """The sets of ranks that XLA connects for a program, given as HLO, and this rank is in.

    By MPI XLA says of a set its first rank, and the place of this one, so which of two it wants is
    known only where it comes to both.
    """
    found: dict[Group, bool] = {}  # whether it always comes to it
    for match, always in _in_order(*_computations(text)):
        if match["op"] != "collective-permute":  # that takes all
            for group in _groups(match["rest"], size):
                if rank in group:
                    found.setdefault(group, always)
    for a, b in itertools.combinations(found, 2):
        if not found[a] and (a[0], a.index(rank)) == (b[0], b.index(rank)):
            raise Refused(
                UNIMPLEMENTED,
                f"groups {list(a)} and {list(b)} in one program, the first in a branch or a loop: "
                "XLA does not say which it means, but by gloo. Set "
                "TORCH_XLA_CC_POD_COLLECTIVES=gloo, or begin one with another rank",
            )
    return tuple(found)


def one(group: Group, said: str) -> Calls:
    """Of one collective, in words."""
    return Calls(((group, (_hashed(said),)),), {_hashed(said): _shown(said)})


def _hashed(said: str) -> str:
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _shown(said: str) -> str:
    """Without layouts, and not too long."""
    return _LAYOUT.sub("", said)[:_SHOWN]


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


def _in_order(
    computations: dict[str, list[str]], name: str, *, always: bool = True
) -> Iterator[tuple[re.Match[str], bool]]:
    """The collectives of one and of those that it calls, as they are scheduled.

    And whether it comes to each, whatever its branches and loops do.
    """
    for line in computations.get(name, []):
        if match := INSTRUCTION.match(line):
            yield match, always
            continue
        for how, one, several in _CALLED.findall(line):
            through = always and how in ("to_apply", "calls")
            for called in (one, *several.split(", ")):
                yield from _in_order(computations, called.lstrip("%"), always=through)


def _attributes(match: re.Match[str], computations: dict[str, list[str]]) -> Iterator[str]:
    yield from _SAID.findall(match["rest"])
    if ours := _OURS.search(match["rest"]):  # all that it was called with
        yield "of " + _GROUPS_OF_OURS.sub("", ours[1])
    if group := _IN_GROUP.search(match["rest"]):
        yield f"in group {group[1]!r}"
    if called := _CALLED.search(match["rest"]):  # what it reduces with
        yield from (
            root[1] for line in computations.get(called[2], []) if (root := _ROOT.match(line))
        )


def _links(match: re.Match[str], group: Group, rank: int) -> Iterator[Group]:
    """To which ranks this one sends messages, and from which it gets some."""
    if match["op"] == "collective-permute":
        yield from (pair for pair in _listed(match["rest"]) if rank in pair and len({*pair}) > 1)
    elif match["op"] in ("all-to-all", "ragged-all-to-all"):
        for other in group:
            if other != rank:
                yield from ((rank, other), (other, rank))


def _listed(attributes: str) -> list[Group]:
    """The groups or pairs that are written one by one."""
    lists = _LISTS.search(attributes)
    rows = re.findall(r"\{([\d,]+)\}", lists[1]) if lists else []
    return [tuple(int(n) for n in row.split(",")) for row in rows]


def _groups(attributes: str, size: int) -> list[Group]:
    if iota := _IOTA.search(attributes):
        shape, dims, order = (
            [int(n) for n in part.split(",")] if part else None for part in iota.groups()
        )
        assert shape is not None and dims is not None
        ids = np.arange(int(np.prod(dims))).reshape(dims).transpose(order).reshape(shape)
        return [tuple(row) for row in ids.tolist()]
    groups = _listed(attributes)
    if "source_target_pairs" in attributes:
        return [tuple(sorted({rank for pair in groups for rank in pair}))]
    return groups or [tuple(range(size))]
