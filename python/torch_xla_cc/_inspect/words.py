"""Rows of a report in words, and tables as text."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import PurePath

from rich.console import Console
from rich.table import Table

from .rows import HOST, UNKNOWN, Row

WIDTH = 160  # of tables that go to no terminal


def text_of(table: Table, width: int) -> str:
    """The table as it is printed."""
    page = Console(file=io.StringIO(), width=width, markup=False)
    page.print(table)
    assert isinstance(page.file, io.StringIO)
    return page.file.getvalue()


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
    if not row.compiled or row.overlaps:
        return short(row.meanwhile)
    return f"waits, beside little: {short(row.meanwhile)}" if row.meanwhile else "waits"


def places(row: Row) -> str:
    """Where it was issued; of those that were combined, each."""
    found = row.calls or ((row.file, row.line),)
    return short(tuple(f"{PurePath(file).name}:{line}" for file, line in found if file))


def short(texts: tuple[str, ...]) -> str:
    """ "2 f32[4], f32[8]"."""
    counts = Counter(texts)
    return ", ".join(text if n == 1 else f"{n} {text}" for text, n in counts.items())
