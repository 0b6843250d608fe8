"""A profile as tables, for people."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from .._inspect.words import places, short
from .report import Profile, Timed


def tables(found: Profile) -> list[Table]:
    """Of collectives, and of ranks."""
    return [_collectives(found), _ranks(found)]


def first_lines(found: Profile) -> list[str]:
    """What matters most."""
    runs = sum(row.runs for row in found.rows if row.predicted)
    lines = [f"{found.folder}: {found.world} ranks, {runs} runs of collectives"]
    whole = sum(rank.ns for rank in found.ranks)
    inside = sum(rank.collectives_ns for rank in found.ranks)
    waiting = sum(rank.waiting_ns for rank in found.ranks)
    if whole:
        lines.append(
            f"{inside / whole:.0%} of the ranks' time in collectives: {waiting / whole:.0%} "
            f"waiting for ranks that came later, {(inside - waiting) / whole:.0%} moving data"
        )
    host = sum(rank.host_ns for rank in found.ranks)
    if host:
        lines.append(f"{ms(host)} ms waiting on the host, of all ranks together")
    late = max(found.ranks, key=lambda rank: rank.kept_waiting_ns)
    if late.kept_waiting_ns:
        lines.append(
            f"rank {late.rank} kept the others waiting longest: "
            f"{ms(late.kept_waiting_ns)} ms in all"
        )
    if found.alone:
        lines.append(f"{found.alone} collectives that not all of their ranks' traces have")
    if found.unknown:
        lines.append(f"{found.unknown} instructions of programs that were begun before the trace")
    return lines


def _collectives(found: Profile) -> Table:
    table = Table(
        title=Text("\n".join(first_lines(found))),
        title_justify="left",
        caption=Text(
            "times are milliseconds, on average of runs and ranks; bytes and what overlaps as "
            "inspection has them"
        ),
        caption_justify="left",
    )
    for heading in ("in the trace", "collective", "issued at", "last"):
        table.add_column(heading, overflow="fold")
    for heading in ("runs", "time", "waiting", "moving", "beside compute", "bytes", "GB/s"):
        table.add_column(heading, justify="right")
    for row in found.rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: Timed) -> list[str]:
    parts = ["?", "?"]
    if row.waiting_ns is not None:
        parts = [ms(row.waiting_ns), ms(row.moving_ns)]
    figures = [f"{row.runs:,}", ms(row.ns), *parts]
    last = _last(row.last)
    if row.predicted is None:
        return [row.name, "on the host", "", last, *figures, "", "", ""]
    one = row.predicted
    what = f"{one.after} {short(one.operands)}"
    beside = f"{row.beside_ns / row.ns:.0%}" if row.ns else ""
    beside += f" ({'overlaps' if one.overlaps else 'waits'})"
    speed = f"{row.bytes_per_s / 1e9:.3f}"
    return [row.name, what, places(one), last, *figures, beside, f"{one.wire_bytes:,}", speed]


def _last(times: Mapping[int, int]) -> str:
    shown = [f"rank {rank}: {n}" for rank, n in list(times.items())[:3]]
    return ", ".join(shown) + (", ..." if len(times) > 3 else "")


def _ranks(found: Profile) -> Table:
    table = Table(title="Ranks, in milliseconds", title_justify="left")
    headings = (
        *("rank", "time", "in collectives", "of that waiting", "waiting on the host"),
        *("came last", "kept others waiting"),
    )
    for heading in headings:
        table.add_column(heading, justify="right")
    for rank in found.ranks:
        table.add_row(
            *(str(rank.rank), ms(rank.ns), ms(rank.collectives_ns), ms(rank.waiting_ns)),
            *(ms(rank.host_ns), f"{rank.last:,}", ms(rank.kept_waiting_ns)),
        )
    return table


def ms(ns: float) -> str:
    """Nanoseconds as milliseconds."""
    return f"{ns / 1e6:,.3f}"
