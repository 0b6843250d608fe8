"""A profile as tables, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from .._inspect.words import places, short
from .report import Profile, RankTime, Timed


def tables(found: Profile) -> list[Table]:
    """Of collectives, and of ranks."""
    return [_collectives(found), _ranks(found)]


def first_lines(found: Profile) -> list[str]:
    """What matters most."""
    runs = sum(row.runs for row in found.rows if row.predicted)
    missing = found.missing
    traced = f"{found.world - len(missing)} of {found.world}" if missing else f"{found.world}"
    lines = [f"{found.folder}: {traced} ranks, {runs} runs of collectives"]
    if missing:
        lines.append(
            f"no trace of {_ranks_in_words(missing)}, so '?' where they took part. Trace all "
            "ranks at once to see who waited for whom"
        )
    if found.are_guessed:
        lines.append(
            "ranks are numbered in the order of their folders: trace each into rank0, rank1, ..."
        )
    lines += _of_their_time(found.ranks)
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
        lines.append(
            f"{found.alone} runs of collectives that not all of their ranks have a trace of"
        )
    if found.unknown:
        lines.append(f"{found.unknown} instructions of programs that were begun before the trace")
    return lines


def _of_their_time(ranks: Sequence[RankTime]) -> list[str]:
    """How much of it was in collectives, and how that was spent."""
    whole = sum(rank.ns for rank in ranks)
    if not whole:
        return []
    inside = sum(rank.collectives_ns for rank in ranks)
    waiting = sum(rank.waiting_ns for rank in ranks)
    unmatched = sum(rank.unmatched_ns for rank in ranks)
    parts = []
    if unmatched < inside or not inside:
        parts += [
            f"{waiting / whole:.0%} waiting for ranks that came later",
            f"{(inside - waiting - unmatched) / whole:.0%} moving data",
        ]
    if unmatched:
        parts.append(f"{unmatched / whole:.0%} in runs that not all of their ranks have a trace of")
    return [f"{inside / whole:.0%} of the ranks' time in collectives: {', '.join(parts)}"]


def _ranks_in_words(ranks: Sequence[int]) -> str:
    named = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {named}"


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
        known = not rank.unmatched_ns or rank.unmatched_ns < rank.collectives_ns
        table.add_row(
            *(str(rank.rank), ms(rank.ns), ms(rank.collectives_ns)),
            *(ms(rank.waiting_ns) if known else "?", ms(rank.host_ns)),
            *((f"{rank.last:,}", ms(rank.kept_waiting_ns)) if known else ("?", "?")),
        )
    return table


def ms(ns: float) -> str:
    """Nanoseconds as milliseconds."""
    return f"{ns / 1e6:,.3f}"
