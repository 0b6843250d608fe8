"""Reports: of a dump, a file, or a program that was traced here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .._hlo.collectives import Collective, Finder
from . import advice, compare, dump, html
from .compiled import Compiled, compiled
from .record import Record
from .rows import HOST, Row, not_compiled, rows, through_host

if TYPE_CHECKING:
    from .trace import Traced


class Report(Record):
    """The collectives of one program for one target."""

    def compare(self, other: Report) -> compare.Comparison:
        """Both side by side, collective by collective."""
        return compare.compare(self, other)

    def to_html(self) -> str:
        """A page that needs nothing else."""
        return html.page([self])


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
