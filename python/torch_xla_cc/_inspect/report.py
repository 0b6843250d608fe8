"""Reports: of a dump, a file, or a program that was traced here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .._hlo.collectives import Collective, Finder
from .._hlo.links import busiest
from .._hlo.topology import topology_of
from .._hlo.traffic import Transfer
from . import advice, compare, dump, html
from .compiled import Compiled, compiled
from .matches import matched
from .record import Record
from .rows import HOST, Row, not_compiled, rows, through_host
from .schedule import schedule
from .work import asked

if TYPE_CHECKING:
    from .._aot import Options
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
    found = dump.modules(path)
    named = [files for files in found if module in files.name]
    if not named:
        raise dump.DumpError(
            f"{path}: no module has {module!r} in its name: it has "
            f"{', '.join(files.name for files in found)}"
        )
    made = [of_files(files) for files in named]
    return [report for report in made if report.rows]


def of_files(files: dump.Files) -> Report:
    """Of a module of a dump; if it has only one side, that stands for both."""
    sides = [dump.read(path) for path in (files.before, files.after) if path]
    world = max(side.world for side in sides)
    before, after = sides[0].collectives, sides[-1].collectives
    made = rows(before, after, world)
    given: tuple[advice.Advice, ...] = ()
    if made and files.before and files.after:
        wholes = [side.whole for side in sides]
        if all(wholes):
            given = advice.of_programs(wholes[0], wholes[1], world)
    found = sides[0].finder if files.before else None
    return Report(
        files.name,
        "",
        world,
        tuple(made),
        lengths=_lengths(sides[-1].finder, made),
        schedule=schedule(sides[-1].whole, sides[-1].finder, made),
        advice=given,
        link_bytes=_link_bytes(after, "", world),
        fewest_link_bytes=_fewest(found, before, after, "", world),
    )


def of_sides(traced: Traced, before: Finder, after: Compiled) -> Report:
    """Of a program that was traced here."""
    target, world = traced.target, traced.world
    found = after.finder()
    were = before.found()
    became = were if after.failure else found.found()
    made = rows(were, became, world, target)
    if after.failure:
        made = not_compiled(were, world, target)
    made += [through_host(call) for call in traced.calls if call.rule == HOST]
    return Report(
        module=traced.name,
        target=target,
        world=world,
        rows=tuple(made),
        memory=after.memory,
        failure=after.failure,
        lengths=_lengths(found, made),
        schedule=schedule(after.computations, found, made),
        advice=advice.of_traced(traced, after),
        link_bytes=_link_bytes(became, target, world),
        fewest_link_bytes=_fewest(before, were, became, target, world),
    )


def sides(
    traced: Traced, timeout_s: float, options: Options | None = None
) -> tuple[Traced, Finder, Compiled]:
    """A traced program, its collectives, and what the target's compiler made of it."""
    if not traced.module:
        return traced, Finder(), Compiled()
    made = compiled(traced.module, traced.target, traced.world, timeout_s, options)
    return traced, traced.finder(), made


def of_traced(programs: Sequence[Traced]) -> Report:
    """Of the programs of a rank, of which no compiler has been asked."""
    target, world = programs[0].target, programs[0].world
    made: list[Row] = []
    were: list[Collective] = []
    work: list[Transfer] = []
    for one in programs:
        found = one.finder()
        some = found.found()
        made += not_compiled(some, world, target)
        made += [through_host(call) for call in one.calls if call.rule == HOST]
        were += some
        work += asked(found, some, some)
    return Report(
        programs[0].name,
        target,
        world,
        tuple(made),
        link_bytes=_link_bytes(were, target, world),
        fewest_link_bytes=_link_bytes(work, target, world),
    )


def _link_bytes(collectives: Iterable[Transfer], target: str, world: int) -> int:
    return busiest(collectives, topology_of(target, world), world)


def _fewest(
    found: Finder | None,
    before: Sequence[Collective],
    after: Sequence[Collective],
    target: str,
    world: int,
) -> int:
    """Of what was called, but for what the compiler has found that nobody needs."""
    _, gone = matched(before, after)
    lives = [one for one in before if one not in gone]
    return _link_bytes(asked(found, before, lives) if found else lives, target, world)


def _lengths(found: Finder, made: Iterable[Row]) -> dict[str, int]:
    return {row.computation: found.lengths.get(row.computation, 0) for row in made}
