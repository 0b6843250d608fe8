"""The flight recorder: the last calls of this rank, with their state and times."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist

from torch_xla_cc import _C
from torch_xla_cc._threads.worlds import this_rank

_SHOWN = 10  # calls, on standard error


def _rank() -> int:
    rank = this_rank()
    if rank is not None:
        return rank
    return dist.get_rank() if dist.is_initialized() else 0


def flight_recorder(last: int | None = None) -> list[dict[str, Any]]:
    """The last calls of this rank, the oldest first.

    Each is a dict: "group", "number" (among the rank's collectives in the group; 0 for point to
    point), "call" (op, shapes, dtype, kind), "site" (file and line), "through" ("graph", or "host"
    if XLA did not carry it), "state" ("issued", "running", "done" or "failed"), "issued" and
    "ended" (as time.time(); 0 if it has not ended).

    1,000 are kept; TORCH_XLA_CC_FLIGHT_RECORDER says how many. When a group fails, its rank writes
    them as JSON into the folder that TORCH_XLA_CC_DUMP names, and the last ten to standard error.
    """
    if last is not None and (not isinstance(last, int) or isinstance(last, bool) or last < 0):
        raise ValueError(f"flight_recorder: last = {last!r}, but it must be an int, 0 or more")
    calls: list[dict[str, Any]] = _C.recorded_calls(_rank())
    return calls if last is None else calls[len(calls) - min(last, len(calls)) :]


def _line(call: dict[str, Any], now: float) -> str:
    ended = f"took {call['ended'] - call['issued']:.3f} s" if call["ended"] else "has not ended"
    return (
        f"  {now - call['issued']:9.3f} s ago  {call['state']:8}{call['call']} at {call['site']}, "
        f"group {call['group']}, {ended}"
    )


def _dump(rank: int, why: str) -> None:
    calls = _C.recorded_calls(rank)
    lines = [f"torch_xla_cc: rank {rank}: {why}", "the last calls of this rank:"]
    lines += [_line(call, time.time()) for call in calls[-_SHOWN:]]
    folder = os.environ.get("TORCH_XLA_CC_DUMP")
    if folder:
        path = Path(folder) / f"flight_rank{rank}_{os.getpid()}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"rank": rank, "why": why, "calls": calls}, indent=1))
            lines.append(f"all of them: {path}")
        except OSError as error:  # what is dumped is the error that counts
            lines.append(
                f"all of them are not written: TORCH_XLA_CC_DUMP = {folder!r}, but it must be a "
                f"folder that can be made and written to. {error}"
            )
    print("\n".join(lines), file=sys.stderr, flush=True)


def start() -> None:
    """Begin to record, and have failures dumped."""
    value = os.environ.get("TORCH_XLA_CC_FLIGHT_RECORDER", "1000")
    if not value.isdigit():
        raise ValueError(
            f"TORCH_XLA_CC_FLIGHT_RECORDER = {value!r}, but it must be a number of calls"
        )
    _C.record_calls(int(value))
    _C.set_dumper(_dump)
