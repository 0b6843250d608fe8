"""The schedule of a compiled program around its collectives: what computes between them.

What is shown of it, as timeline.py does. A run of instructions without a collective is one part,
of which the largest are kept: so a program of thousands of instructions has as few parts as it has
collectives.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .._hlo.collectives import Collective, Finder
from .._hlo.effort import effort
from .._hlo.instruction import Instruction
from .._hlo.text import Computation
from .rows import Row, handed_on, named, touched

COMPUTES, STARTS, ENDS, WHOLE = "computes", "starts", "ends", "whole"

MOST_PARTS = 1000  # of a program; more are left out
_MOST_LINES = 4000  # of all parts together
_MOST_LINES_OF_PART, _LEAST_LINES_OF_PART = 24, 4
_LONGEST = 400  # characters of an instruction
_MOST_OPERANDS = 8


@dataclass(frozen=True)
class Line:
    """An instruction."""

    place: int  # in the schedule of its computation
    what: str  # "fusion (convolution)"
    text: str  # as in HLO, shortened
    work_bytes: int  # that it reads and writes, or could in the time of its products
    file: str
    line: int


@dataclass(frozen=True)
class Part:
    """A piece of a computation's schedule: a run of what computes, or an end of a collective."""

    computation: str
    kind: str  # COMPUTES; STARTS and ENDS of an asynchronous collective, or the WHOLE of another
    place: int  # of the first instruction
    row: int = -1  # of a collective: the number of its row
    count: int = 1  # of instructions that compute
    work_bytes: int = 0  # of all of them
    lines: tuple[Line, ...] = ()  # the largest of them, in their order
    others: str = ""  # which are left out: "3 fusion, 2 copy"


def schedule(
    computations: Sequence[Computation], found: Finder, rows: Sequence[Row]
) -> tuple[Part, ...]:
    """Of the computations that have collectives of these rows, if they are known."""
    ends: dict[str, dict[int, list[tuple[str, int]]]] = defaultdict(lambda: defaultdict(list))
    for number, row in enumerate(rows):
        if row.compiled:
            of = ends[row.computation]
            if row.begins == row.ends:
                of[row.begins].append((WHOLE, number))
            else:
                of[row.begins].append((STARTS, number))
                of[row.ends].append((ENDS, number))
    parts = 2 * sum(len(some) for of in ends.values() for some in of.values()) + 1
    most = max(_LEAST_LINES_OF_PART, min(_MOST_LINES_OF_PART, _MOST_LINES // parts))
    some = found.found()
    steps = _Steps(found, some)
    # The program's own first; others are bodies of loops and branches.
    wanted = [one for one in computations if one.name in ends]
    wanted.sort(key=lambda one: not one.is_entry)
    made = [part for one in wanted for part in _parts(one, steps, ends[one.name], most)]
    return tuple(made[:MOST_PARTS])


class _Steps:
    """What computes, also where it hands a collective on."""

    def __init__(self, found: Finder, collectives: Sequence[Collective]) -> None:
        self._found = found
        self._beside = {step for one in collectives for step in one.meanwhile}
        self._handed = handed_on(collectives)

    def computes(self, one: Instruction) -> bool:
        return one in self._beside or self._found.computes(one)

    def work(self, one: Instruction) -> int:
        """Bytes, as of what computes beside a collective."""
        return touched(one, effort(one, self._found.efforts), self._handed[one])


def _parts(
    computation: Computation, steps: _Steps, ends: dict[int, list[tuple[str, int]]], most: int
) -> Iterator[Part]:
    run: list[tuple[int, Instruction]] = []
    for place, one in enumerate(computation.instructions):
        if place not in ends:
            if steps.computes(one):
                run.append((place, one))
            continue
        if run:
            yield _run(computation.name, run, steps, most)
            run = []
        for kind, row in ends[place]:
            line = _line(place, one, 0)
            yield Part(computation.name, kind, place, row, lines=(line,))
    if run:
        yield _run(computation.name, run, steps, most)


def _run(name: str, run: Sequence[tuple[int, Instruction]], steps: _Steps, most: int) -> Part:
    lines = [_line(place, one, steps.work(one)) for place, one in run]
    largest = sorted(range(len(run)), key=lambda i: -lines[i].work_bytes)[:most]
    left_out = Counter(one.opcode for i, (_, one) in enumerate(run) if i not in largest)
    return Part(
        name,
        COMPUTES,
        run[0][0],
        count=len(run),
        work_bytes=sum(line.work_bytes for line in lines),
        lines=tuple(lines[i] for i in sorted(largest)),
        others=_counted(left_out.most_common(6)),
    )


def _counted(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{n} {opcode}" for opcode, n in counts)


def _line(place: int, one: Instruction, work_bytes: int) -> Line:
    text = _hlo(one)
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
    what = named(one).partition(" of ")[0]
    return Line(place, what, shown, work_bytes, one.source.file, one.source.line)


def _hlo(one: Instruction) -> str:
    """As in HLO text, without layouts and most attributes."""
    operands = ", ".join(f"%{operand.name}" for operand in one.operands[:_MOST_OPERANDS])
    if len(one.operands) > _MOST_OPERANDS:
        operands += f", ... {len(one.operands)} in all"
    text = f"%{one.name} = {one.shape} {one.opcode}({operands})"
    if one.custom_call_target:
        text += f', custom_call_target="{one.custom_call_target}"'
    if one.groups is not None and not one.pairs:
        shown = ",".join("{" + ",".join(map(str, group)) + "}" for group in one.groups)
        text += f", replica_groups={{{shown}}}"
    if one.pairs:
        pairs = ",".join(f"{{{a},{b}}}" for a, b in one.pairs)
        text += f", source_target_pairs={{{pairs}}}"
    if one.called:
        text += f", calls={', '.join(f'%{name}' for name in one.called)}"
    return text
