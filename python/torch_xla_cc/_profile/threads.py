"""Whose work the threads of a process do, where several ranks share it.

Events of XLA:CPU do not say which device they are of. But what hands a rank's program over is an
event with its number (_threads/traced.py), and pools of threads say where each task was begun: it
is the rank's for which that was.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from .xplane import Plane

_OURS = re.compile(r"torch_xla_cc (rank|meets) (\d{1,9})")  # as in _threads/traced.py
_BEGUN, _BEGINS, _ENDS = (
    f"ThreadpoolListener::{name}" for name in ("Record", "StartRegion", "StopRegion")
)
_Place = tuple[int, int]  # a line, and a time


class Threads:
    """The lines of a plane."""

    def __init__(self, plane: Plane) -> None:
        self._begun: dict[int, _Place] = {}  # of each task: where it was
        # Of each line, in order of time: when a task begins there, when it ends, and its number;
        # and when a rank's program is handed over, until when, and which rank's.
        self._tasks: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        self._handed: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        # When ranks came to meet the others, and when their programs were handed over after that:
        # by the clock of the trace.
        self._came: list[tuple[int, int]] = []
        self._went: list[tuple[int, int]] = []
        self._known: dict[int, int | None] = {}  # ranks of tasks
        for number, line in enumerate(plane.message.lines):
            self._read(plane, number, line)

    def _read(self, plane: Plane, number: int, line: Any) -> None:  # noqa: ANN401 (a message)
        names = plane.message.event_metadata
        begins = task = 0
        for event in sorted(line.events, key=lambda one: one.offset_ps):
            at, stats = event.offset_ps, event.stats
            name = names[event.metadata_id].name
            if name == _BEGUN:
                self._begun[int(plane.stat(stats, "_p") or 0)] = number, at
            elif name == _BEGINS:
                begins, task = at, int(plane.stat(stats, "_c") or 0)
            elif name == _ENDS and task:
                self._tasks[number].append((begins, at, task))
                task = 0
            elif ours := _OURS.fullmatch(name):
                rank, at_ns = int(ours[2]), line.timestamp_ns + at // 1000
                if ours[1] == "meets":
                    self._came.append((at_ns, rank))
                else:
                    self._handed[number].append((at, at + event.duration_ps, rank))
                    self._went.append((at_ns, rank))
        if task:  # it had not ended when the trace did
            self._tasks[number].append((begins, 1 << 62, task))

    @property
    def shared(self) -> bool:
        """Whether it is known whose anything is."""
        return bool(self._handed)

    def meetings(self) -> Iterator[tuple[int, dict[int, int]]]:
        """When ranks met on the host: when that ended, and when each of them came.

        Programs of all are handed over at once. Who came before the trace began is not in it.
        """
        came: dict[int, list[int]] = defaultdict(list)
        for at, rank in sorted(self._came):
            came[rank].append(at)
        went: dict[int, int] = {}
        for at, rank in [*sorted(self._went), (1 << 62, -1)]:
            if rank in went or rank < 0:
                ends = min(went.values(), default=0)
                last = {one: bisect(came[one], when) - 1 for one, when in went.items()}
                met = {one: came[one][i] for one, i in last.items() if i >= 0}
                if len(met) > 1:
                    yield max(ends, *met.values()), met
                went = {}
            went[rank] = at

    def rank(self, line: int, at: int) -> int | None:
        """Of what happens there and then, if it is known."""
        way: dict[int, None] = {}
        while True:
            rank = _around(self._handed[line], at)
            task = _around(self._tasks[line], at) if rank is None else None
            if task is None or task in self._known or task in way or task not in self._begun:
                break
            way[task] = None
            line, at = self._begun[task]
        if task is not None:
            rank = self._known.get(task)
        self._known.update(dict.fromkeys(way, rank))
        return rank


def _around(spans: list[tuple[int, int, int]], at: int) -> int | None:
    """The number of the last that begins before, if it has not ended."""
    place = bisect(spans, (at, 1 << 63, 0)) - 1
    return spans[place][2] if place >= 0 and at <= spans[place][1] else None
