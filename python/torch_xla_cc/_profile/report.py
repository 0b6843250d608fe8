"""What a trace says of each collective, beside what inspection of the program says."""

from __future__ import annotations

import dataclasses
import itertools
import json
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .._inspect.rows import Row, rows
from .meetings import Meeting, meetings
from .ops import HOST, Op, Ran, ran
from .xplane import Space, TraceError

_MOST_RANKS = 1 << 16

_VERSION = 1  # of the JSON


@dataclass(frozen=True)
class Timed:
    """A collective of a program: what was predicted of it, and what was measured, on average over
    its runs and their ranks."""

    module: str
    name: str  # as in the trace
    predicted: Row | None  # None: ranks that are threads meet, before they hand a program over
    runs: int
    ns: float
    beside_ns: float  # while something computed on the same rank
    waiting_ns: float | None  # for a rank that came later; None: no other rank's part is there
    last: Mapping[int, int]  # how often which rank came last

    @property
    def moving_ns(self) -> float:
        """Of its time, that in which all were there."""
        return self.ns - (self.waiting_ns or 0)

    @property
    def bytes_per_s(self) -> float:
        """What came to a rank, in the time in which all were there."""
        if self.predicted is None or self.moving_ns <= 0:
            return 0.0
        return self.predicted.wire_bytes / self.moving_ns * 1e9


@dataclass(frozen=True)
class RankTime:
    """The time of a rank, in all."""

    rank: int
    ns: int  # from the first that it did to the last
    collectives_ns: int
    waiting_ns: int  # of these
    unmatched_ns: int  # of these, in such as not all of their ranks' traces have
    host_ns: int  # waiting before programs were handed over, beside what the device did
    last: int  # how often it came last
    kept_waiting_ns: int  # the others, all together, for it


@dataclass(frozen=True)
class Profile:
    """Of one folder."""

    folder: str
    world: int
    rows: tuple[Timed, ...]  # in the order in which they first ran
    ranks: tuple[RankTime, ...]
    alone: int  # collectives of which the trace does not have all ranks
    unknown: int  # instructions of which it does not say whose they are
    are_guessed: bool  # ranks are numbered in the order of their folders, which have no numbers

    @property
    def missing(self) -> list[int]:
        """Ranks that no trace is of."""
        traced = {rank.rank for rank in self.ranks}
        return [rank for rank in range(self.world) if rank not in traced]

    def to_json(self) -> str:
        """For programs; times are nanoseconds."""
        found = dataclasses.asdict(self)
        for made, row in zip(found["rows"], self.rows, strict=True):
            made |= {"moving_ns": row.moving_ns, "bytes_per_s": row.bytes_per_s}
        return json.dumps({"version": _VERSION, **found, "missing": self.missing}, indent=2)


def profile(folder: str, spaces: Sequence[Space]) -> Profile:
    """Of the traces of all processes of a job. TraceError of what no profiler has written."""
    try:
        return _profile(folder, spaces)
    except TraceError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise TraceError(
            f"{folder}: expected traces of torch_xla's profiler: {type(error).__name__}: {error}"
        ) from error


def _profile(folder: str, spaces: Sequence[Space]) -> Profile:
    found = ran(spaces)
    if not found.ops:
        raise TraceError(
            f"{folder}: the trace has no instruction of a program that a rank ran. Let it run for "
            "whole steps, and under torch_xla_cc.launch, or on the pod"
        )
    # The programs know of ranks that are not traced.
    world = max(max(op.rank + 1, op.program.ranks) for op in found.ops)
    if world > _MOST_RANKS:
        raise TraceError(
            f"{folder}: a trace is of {world:,} ranks, but at most {_MOST_RANKS:,} are read"
        )
    met, alone = meetings(found, world)
    timed = _timed(met, alone, _Work(found.ops), world)
    ranks = tuple(_ranks(found, met, alone))
    rest = (len(alone), found.unknown, found.are_guessed)
    return Profile(folder, world, tuple(timed), ranks, *rest)


def _timed(met: Sequence[Meeting], alone: Iterable[Op], work: _Work, world: int) -> list[Timed]:
    by_name: dict[tuple[str, str], list[Meeting]] = defaultdict(list)
    for one in met:
        by_name[one.ops[0].program.name, one.ops[0].name].append(one)
    left: dict[tuple[str, str], list[Op]] = defaultdict(list)
    for op in alone:
        left[op.program.name, op.name].append(op)
    predicted = _Predictions(world)
    made = []
    for (module, name), some in by_name.items():
        every = [(one, op) for one in some for op in one.ops]
        waiting_ns = sum(one.waited_ns(op) for one, op in every) / len(every)
        last = dict(Counter(one.last.rank for one in some).most_common())
        ops = [op for _, op in every]
        row = predicted.of(ops[0])
        made.append(Timed(module, name, row, len(some), *work.means(ops), waiting_ns, last))
    for (module, name), ops in left.items():
        if (module, name) not in by_name:
            runs = max(Counter(op.rank for op in ops).values())
            made.append(Timed(module, name, predicted.of(ops[0]), runs, *work.means(ops), None, {}))
    return made


class _Predictions:
    """What inspection says of the programs that ran."""

    def __init__(self, world: int) -> None:
        self._world = world
        self._known: dict[int, dict[str, Row]] = {}

    def of(self, op: Op) -> Row | None:
        """None where ranks meet on the host."""
        key = id(op.program)
        if key not in self._known:
            found = list(op.program.collectives.values())
            self._known[key] = {row.name: row for row in rows(found, found, self._world)}
        return self._known[key].get(op.name)


class _Work:
    """When ranks computed."""

    def __init__(self, ops: Iterable[Op]) -> None:
        self._ends: dict[int, list[int]] = defaultdict(list)
        self._begins: dict[int, list[int]] = defaultdict(list)
        for op in ops:  # in order; what overlaps is made one
            if op.collective is not None:
                continue
            begins, ends = self._begins[op.rank], self._ends[op.rank]
            if ends and op.begins_ns <= ends[-1]:
                ends[-1] = max(ends[-1], op.ends_ns)
            else:
                begins.append(op.begins_ns)
                ends.append(op.ends_ns)

    def means(self, ops: Sequence[Op]) -> tuple[float, float]:
        """How long they took, and computed meanwhile."""
        beside = sum(self._beside(op) for op in ops)
        return sum(op.ns for op in ops) / len(ops), beside / len(ops)

    def _beside(self, op: Op) -> int:
        """For how long the op's rank computed while it ran."""
        begins, ends = self._begins[op.rank], self._ends[op.rank]
        first = bisect(ends, op.begins_ns)
        last = bisect(begins, op.ends_ns)
        spans = zip(begins[first:last], ends[first:last], strict=True)
        return sum(min(b, op.ends_ns) - max(a, op.begins_ns) for a, b in spans)


def _ranks(found: Ran, met: Sequence[Meeting], alone: Iterable[Op]) -> list[RankTime]:
    waited: dict[bool, Counter[int]] = {False: Counter(), True: Counter()}  # True: on the host
    kept: Counter[int] = Counter()
    inside: Counter[int] = Counter()
    unmatched: Counter[int] = Counter()
    last = Counter(one.last.rank for one in met)
    for op in alone:
        unmatched[op.rank] += op.ns
    for one in met:
        for op in one.ops:
            waited[op.program is HOST][op.rank] += one.waited_ns(op)
            kept[one.last.rank] += one.waited_ns(op)
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for op in [*found.ops, *itertools.chain(*found.on_host)]:
        begins[op.rank] = min(op.begins_ns, begins.get(op.rank, op.begins_ns))
        ends[op.rank] = max(op.ends_ns, ends.get(op.rank, op.ends_ns))
        inside[op.rank] += op.ns if op.collective else 0
    return [
        RankTime(
            rank,
            ends[rank] - begins[rank],
            inside[rank],
            waited[False][rank],
            unmatched[rank],
            waited[True][rank],
            last[rank],
            kept[rank],
        )
        for rank in sorted(begins)
    ]
