"""Calls of the flight recorder as a table for people."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist
from rich.console import Console
from rich.table import Table

from torch_xla_cc._runtime.private import c10d
from torch_xla_cc.distributed._flight import flight_recorder


def call_table(calls: Sequence[dict[str, Any]] | None = None, width: int = 140) -> str:
    """What this rank has called, as text: equal calls from one line of the program are one row.

    Args:
      calls: some of what `flight_recorder()` gives, such as those of a step; all of it if None.
      width: of the text, in characters.
    """
    ranks = _ranks_of_groups()
    rows = Counter(
        (call["call"], ranks.get(call["group"], call["group"]), call["through"], _place(call))
        for call in (flight_recorder() if calls is None else calls)
    )
    table = Table(title=f"{rows.total()} calls")
    for title in ("call", "ranks", "through", "called at"):
        table.add_column(title, overflow="fold")
    table.add_column("times", justify="right")
    for row, times in rows.items():
        table.add_row(*row, str(times))
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, markup=False).print(table)
    return out.getvalue()


def _place(call: dict[str, Any]) -> str:
    path, _, line = call["site"].rpartition(":")
    if not path:  # no line of Python: torch's own code has called, as that of DDP does
        return "C++"
    return f"{Path(path).name}:{line}"


def _ranks_of_groups() -> dict[str, str]:
    """The ranks of each group of torch.distributed, by the group's name."""
    if not dist.is_initialized():
        return {}
    found = {}
    for group, name in c10d._world.pg_names.items():
        ranks = dist.get_process_group_ranks(group)
        found[name] = "all" if len(ranks) == dist.get_world_size() else str(ranks)
    return found
