"""The schedule of a program as HTML: compute and collectives in order, and what overlaps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from html import escape
from itertools import groupby

from .html_parts import sized, source
from .quotes import Quotes
from .record import Record
from .rows import Row
from .schedule import COMPUTES, ENDS, MOST_PARTS, STARTS, WHOLE, Line, Part
from .words import became

_MOST_LANES = 8  # of collectives that are under way at once; more share the last
_SNIPPETS = 3  # lines of Python that are shown of a piece
_NAMED = 2  # instructions that a run is called after

LEGEND = (
    "<p>The compiled program in the order of its schedule, from top to bottom. Bars are bytes, all "
    'to one scale: <span class="key wire"></span> what a rank receives in a collective, <span '
    'class="key work"></span> what a computation reads and writes, or could in the time that its '
    "products take. A line at the right runs from the start of an asynchronous collective to its "
    "done: what stands beside it runs at the same time. Open a piece to see its instructions in "
    "HLO and their lines in Python.</p>"
)


def timeline(name: str, report: Record, most: int, quotes: Quotes, in_table: bool = True) -> str:
    """Of each computation that has collectives; `name` begins the ids, `most` is the scale.

    `in_table`: the page has a table with a line for each of them, whose id begins so too.
    """
    pictures = []
    for computation, parts in groupby(report.schedule, key=lambda part: part.computation):
        made = _Computation(name if in_table else "", report.rows, list(parts), most, quotes)
        pictures.append(made.html(report.lengths.get(computation, 0)))
    if len(report.schedule) == MOST_PARTS:
        pictures.append(f"<p>The first {MOST_PARTS:,} pieces are shown.</p>")
    return "".join(pictures)


def most_bytes(report: Record) -> int:
    """Of its longest bar."""
    sizes = [part.work_bytes for part in report.schedule]
    return max([1, *sizes, *(row.wire_bytes for row in report.rows)])


def shown(report: Record) -> set[int]:
    """The rows that it shows."""
    return {part.row for part in report.schedule if part.kind in (STARTS, WHOLE)}


class _Computation:
    """The pieces of one computation, one below the other."""

    def __init__(
        self, name: str, rows: Sequence[Row], parts: Sequence[Part], most: int, quotes: Quotes
    ) -> None:
        self._name, self._rows, self._parts, self._most = name, rows, parts, most
        self._quotes = quotes
        self._flights = self._find_flights()
        self._busy: set[int] = set()  # pieces beside which a collective is under way
        for begin, end, _, _ in self._flights:
            self._busy.update(range(begin + 1, end))

    def _find_flights(self) -> list[tuple[int, int, int, int]]:
        """Of each asynchronous collective the pieces that begin and end it, a lane, and its row."""
        ends = {part.row: i for i, part in enumerate(self._parts) if part.kind == ENDS}
        free: list[int] = []  # of each lane: the piece with which it is free
        found = []
        for begin, part in enumerate(self._parts):
            if part.kind != STARTS:
                continue
            end = ends.get(part.row, len(self._parts) - 1)
            lane = next((i for i, until in enumerate(free) if until < begin), len(free))
            if lane == len(free) and lane < _MOST_LANES:
                free.append(end)
            lane = min(lane, _MOST_LANES - 1)
            free[lane] = max(free[lane], end)
            found.append((begin, end, lane, part.row))
        return found

    def html(self, length: int) -> str:
        """With its caption."""
        name = escape(self._parts[0].computation)
        lanes = max((lane + 1 for _, _, lane, _ in self._flights), default=0)
        pieces = "".join(self._piece(i, part) for i, part in enumerate(self._parts))
        rows = self._rows
        flights = "".join(
            f'<span class="flight {_state(rows[row])}" title="{escape(_says(rows[row]))}" '
            f'style="grid-row:{begin + 1}/{end + 2};grid-column:{lane + 2}"></span>'
            for begin, end, lane, row in self._flights
        )
        return (
            f"<h3>{name}: {length:,} instructions</h3>"
            f'<div class="timeline" role="list" style="--lanes:{lanes}">{pieces}{flights}</div>'
        )

    def _piece(self, i: int, part: Part) -> str:
        place = f' style="grid-row:{i + 1}"'
        if part.kind == COMPUTES:
            busy = " beside" if i in self._busy else ""
            head = (
                f"{_run(part)} <b>{sized(part.work_bytes)}</b>{self._bar('work', part.work_bytes)}"
            )
            others = f"<p>Not shown: {escape(part.others)}.</p>" if part.others else ""
            return (
                f'<div role="listitem" class="piece computes{busy}"{place}><details><summary>{head}'
                f"</summary>{_listed(part.lines, self._quotes)}{others}</details></div>"
            )
        row = self._rows[part.row]
        # The start of a fusion that is a collective has no line of its own.
        lines = [one if one.file else _at(one, row) for one in part.lines]
        if part.kind == ENDS:
            head = f'<span class="what">{escape(row.after)}-done</span>'
            return (
                f'<div role="listitem" class="piece ends {_state(row)}"{place}><details><summary>'
                f"{head}</summary>{_listed(lines, self._quotes)}</details></div>"
            )
        head = (
            f'<span class="what">{escape(became(row))}</span> {_says_short(row)} '
            f"{source(row.file, row.line)} <b>{sized(row.wire_bytes)}</b>"
            f"{self._bar('wire', row.wire_bytes)}"
        )
        link = named = ""
        if self._name:
            link = f'<p><a href="#{self._name}-c{part.row}">Its line in the table</a></p>'
            named = f' id="{self._name}-s{part.row}"'
        return (
            f'<div role="listitem" class="piece {escape(part.kind)} {_state(row)}"'
            f"{named}{place}><details>"
            f"<summary>{head}</summary>{_listed(lines, self._quotes)}{link}</details></div>"
        )

    def _bar(self, kind: str, size: int) -> str:
        return f'<span class="scale {kind}" style="--part:{size / self._most:.4f}"></span>'


def _at(line: Line, row: Row) -> Line:
    return dataclasses.replace(line, file=row.file, line=row.line)


def _state(row: Row) -> str:
    return "busy" if row.overlaps else "idle"


def _says(row: Row) -> str:
    return f"{became(row)} {row.name}: {_says_short(row)}"


def _says_short(row: Row) -> str:
    if row.overlaps:
        return "overlaps"
    return "beside little" if row.meanwhile else "waits"


def _run(part: Part) -> str:
    """ "5 instructions: fusion (dot) of a.py:3, copy of a.py:7"."""
    largest = sorted(part.lines, key=lambda line: -line.work_bytes)[:_NAMED]
    named = ", ".join(_named(line) for line in largest)
    if part.count == 1:
        return f'<span class="what">{named}</span>'
    more = " ..." if part.count > len(largest) else ""
    return f'<span class="what">{part.count:,} instructions</span> {named}{more}'


def _named(line: Line) -> str:
    place = source(line.file, line.line)
    return escape(line.what) + (f" of {place}" if place else "")


def _listed(lines: Sequence[Line], quotes: Quotes) -> str:
    items = []
    for line in lines:
        place = source(line.file, line.line)
        size = f" {sized(line.work_bytes)}" if line.work_bytes else ""
        items.append(f"<li><code>{escape(line.text)}</code>{size} {place}</li>")
    places = dict.fromkeys((line.file, line.line) for line in lines)
    snippets = [snippet for place in places if (snippet := quotes.snippet(*place))]
    return f'<ul class="hlo">{"".join(items)}</ul>{"".join(snippets[:_SNIPPETS])}'
