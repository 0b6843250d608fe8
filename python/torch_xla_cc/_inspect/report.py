"""What is reported of a program's collectives: as records, text and JSON."""

from __future__ import annotations

import dataclasses
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._hlo.collectives import Collective, Finder
from .._hlo.traffic import flows
from . import advice, dump
from .compiled import Compiled, compiled
from .rows import GONE, HOST, UNKNOWN, Row, not_compiled, rows, through_host

if TYPE_CHECKING:
    from .compare import Comparison
    from .trace import Traced

WIDTH = 160  # of tables that go to no terminal
_VERSION = 1  # of the JSON


@dataclasses.dataclass(frozen=True)
class Report:
    """The collectives of one program for one target."""

    module: str
    target: str  # "" if it is not known
    world: int  # ranks
    rows: tuple[Row, ...]
    # The compiler's figures in bytes, if it gave any: arguments, outputs, temporaries.
    memory: Mapping[str, int] = dataclasses.field(default_factory=dict)
    failure: str = ""  # why there is no compiled program
    # How many instructions each computation has that has collectives.
    lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)
    advice: tuple[advice.Advice, ...] = ()

    @property
    def counts(self) -> Counter[str]:
        """How often the compiled program has each opcode."""
        return Counter(row.after for row in self.rows if row.after not in (GONE, UNKNOWN, HOST))

    @property
    def wire_bytes(self) -> int:
        """What comes to a rank, of all collectives together."""
        return sum(row.wire_bytes for row in self.rows)

    def traffic(self) -> list[list[int]]:
        """Bytes from each rank, a row, to each other, a column."""
        matrix = [[Fraction(0)] * self.world for _ in range(self.world)]
        for row in self.rows:
            if row.opcode:
                for source, target, amount in flows(row, self.world):
                    matrix[source][target] += amount
        return [[round(amount) for amount in line] for line in matrix]

    def compare(self, other: Report) -> Comparison:
        """Both side by side, collective by collective."""
        from . import compare

        return compare.compare(self, other)

    def to_html(self) -> str:
        """A page that needs nothing else."""
        from . import html

        return html.page([self])

    def to_json(self) -> str:
        fields = dataclasses.asdict(self)
        return json.dumps({"version": _VERSION, **fields, "wire_bytes": self.wire_bytes}, indent=2)

    def _caption(self) -> str:
        if self.failure:
            return f"not compiled: {self.failure}"
        caption = f"{len(self.rows)} collectives; {self.wire_bytes:,} bytes come to a rank"
        if self.memory:
            caption += "; memory: " + ", ".join(f"{k} {n:,}" for k, n in self.memory.items() if n)
        return caption

    @property
    def title(self) -> str:
        """What it is of, and for."""
        return self.module + (f" for {self.target}" if self.target else "")

    def to_text(self, width: int = WIDTH) -> str:
        """A table, for people."""
        return text_of(self.table(), width)

    def table(self) -> Table:
        """The rows, for a terminal."""
        caption = "\n".join([self._caption(), *map(_advised, self.advice)])
        # Text: what is in brackets is no markup.
        table = Table(
            title=f"{self.title}, {self.world} ranks",
            caption=Text(caption, style="table.caption"),
            caption_justify="left",
        )
        for heading in ("collective", "operands", "groups", "how", "issued at", "meanwhile"):
            table.add_column(heading, overflow="fold")
        for heading in ("bytes", "on the wire", "on a link"):
            table.add_column(heading, justify="right")
        for row in self.rows:
            table.add_row(
                became(row),
                short(row.operands),
                ranks(row, self.world),
                f"{row.rule}: {row.why}" if row.why else row.rule,
                f"{PurePath(row.file).name}:{row.line}" if row.file else "",
                overlap(row),
                *(f"{n:,}" for n in (row.memory_bytes, row.wire_bytes, row.link_bytes)),
            )
        return table


def text_of(table: Table, width: int) -> str:
    """The table as it is printed."""
    page = Console(file=io.StringIO(), width=width)
    page.print(table)
    assert isinstance(page.file, io.StringIO)
    return page.file.getvalue()


def of_path(path: str, module: str = "") -> list[Report]:
    """Of the modules of a dump that have collectives, and `module` in their names; or of a file."""
    if not Path(path).is_dir():
        return [of_files(dump.Files(Path(path).name, after=Path(path)))]
    made = [of_files(files) for files in dump.modules(path) if module in files.name]
    return [report for report in made if report.rows]


def of_files(files: dump.Files) -> Report:
    """Of a module of a dump; if it has only one side, that stands for both."""
    sides = [dump.read(path) for path in (files.before, files.after) if path]
    world = max(side.world for side in sides)
    made = rows(sides[0].collectives, sides[-1].collectives, world)
    given: tuple[advice.Advice, ...] = ()
    if made and files.before and files.after:
        before, after = (side.whole for side in sides)
        if before and after:
            given = advice.of_programs(before, after, world)
    lengths = _lengths(sides[-1].finder, made)
    return Report(files.name, "", world, tuple(made), lengths=lengths, advice=given)


def of_sides(traced: Traced, before: list[Collective], after: Compiled) -> Report:
    """Of a program that was traced here."""
    found = after.finder()
    if after.failure:
        made = not_compiled(before, traced.world)
    else:
        made = rows(before, found.found(), traced.world)
    made += [through_host(call) for call in traced.calls if call.rule == HOST]
    return Report(
        module=traced.name,
        target=traced.target,
        world=traced.world,
        rows=tuple(made),
        memory=after.memory,
        failure=after.failure,
        lengths=_lengths(found, made),
        advice=advice.of_traced(traced, after),
    )


def sides(traced: Traced, timeout_s: float) -> tuple[Traced, list[Collective], Compiled]:
    """A traced program, its collectives, and what the target's compiler made of it."""
    if not traced.module:
        return traced, [], Compiled()
    made = compiled(traced.module, traced.target, traced.world, timeout_s)
    return traced, traced.collectives(), made


def of_traced(programs: Sequence[Traced]) -> Report:
    """Of the programs of a rank, of which no compiler has been asked."""
    made = [
        row
        for one in programs
        for row in (
            *not_compiled(one.collectives(), one.world),
            *(through_host(call) for call in one.calls if call.rule == HOST),
        )
    ]
    return Report(programs[0].name, programs[0].target, programs[0].world, tuple(made))


def _lengths(found: Finder, made: Iterable[Row]) -> dict[str, int]:
    return {row.computation: found.lengths.get(row.computation, 0) for row in made}


def _advised(one: advice.Advice) -> str:
    lines = dict.fromkeys(f"{PurePath(file).name}:{line}" for file, line in one.lines if file)
    return f"- {one}" + (f" ({', '.join(lines)})" if lines else "")


def became(row: Row) -> str:
    """ "reduce-scatter -> all-reduce"; "2 all-reduce -> all-reduce-start"."""
    if row.after == HOST:
        return "through the host"
    if row.after == UNKNOWN:
        return short(row.before)
    after = row.after + ("-start" if row.asynchronous else "") if row.after else "gone"
    before = short(row.before)
    if not before:
        return f"{after} (the compiler's own)"
    return after if row.before == (row.after,) else f"{before} -> {after}"


def ranks(row: Row, world: int) -> str:
    """Groups, or pairs, short."""
    if row.pairs:
        shown = ", ".join(f"{a}>{b}" for a, b in row.pairs[:4])
        return shown + (f", ... {len(row.pairs)} pairs" if len(row.pairs) > 4 else "")
    groups = row.groups or ()
    if not groups or groups == (tuple(range(world)),):
        return "all"
    shown = " ".join("{" + ",".join(map(str, group[:8])) + "}" for group in groups[:2])
    return shown + (f" ... {len(groups)} of {len(groups[0])}" if len(groups) > 2 else "")


def overlap(row: Row) -> str:
    """What computes meanwhile."""
    if row.after in (GONE, HOST, UNKNOWN):
        return ""
    if not row.asynchronous:
        return "waits"
    return short(row.meanwhile) or "nothing"


def short(texts: tuple[str, ...]) -> str:
    """ "2 f32[4], f32[8]"."""
    counts = Counter(texts)
    return ", ".join(text if n == 1 else f"{n} {text}" for text, n in counts.items())
