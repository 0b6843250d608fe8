"""What ranks on threads hear, and get, when a call fails while calls of other groups are pending.

A group of which a rank loses a call breaks for all its ranks: else its next call would be taken for
that, and the numbers would be wrong.
"""

from __future__ import annotations

import dataclasses
import math
import random
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch_xla

import torch_xla_cc.xla_model as xm
from torch_xla_cc import RanksDisagree
from torch_xla_cc.distributed import in_graph

LIMIT_S = 60.0  # of groups; nothing here waits for it
SOON_S = 20.0
_flags: dict[str, threading.Event] = {}
_lock = threading.Lock()


def _flag(name: str) -> threading.Event:
    """Of all ranks, for one run of a function."""
    with _lock:
        return _flags.setdefault(name, threading.Event())


def _group(*members: int) -> Any:
    return dist.new_group(list(members), timeout=timedelta(seconds=LIMIT_S))


def _full(value: float, size: int = 2) -> torch.Tensor:
    return torch.full((size,), float(value), device=torch_xla.device())


def got(call: Callable[[], Any]) -> Any:
    """What it gives, or the name of the error."""
    try:
        return call()
    except RanksDisagree as error:
        return type(error).__name__


def _together(*calls: tuple[torch.Tensor, Any]) -> Callable[[], list[list[float]]]:
    def run() -> list[list[float]]:
        with in_graph():
            for x, group in calls:
                dist.all_reduce(x, group=group)
            torch_xla.sync()
        return [x.tolist() for x, _ in calls]

    return run


class _World:
    """One of torch.distributed; the next one is right."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __enter__(self) -> _World:
        dist.init_process_group("xla_cc", timeout=timedelta(seconds=LIMIT_S))
        return self

    def __exit__(self, *_: object) -> None:
        size = dist.get_world_size()
        dist.destroy_process_group()
        dist.init_process_group("xla_cc", timeout=timedelta(seconds=LIMIT_S))
        x = _full(self.rank)
        dist.all_reduce(x)
        assert x.tolist() == [size * (size - 1) / 2] * 2
        with _lock:
            _flags.clear()  # all have come this far
        dist.destroy_process_group()


def found_before_it_comes(rank: int, other: str, reads: bool) -> Any:
    """Rank 1 finds the failure while 0 has its call in the graph, and has not come to run it."""
    with _World(rank):
        group = _group(0, 1)
        x, y = _full(rank), _full(1, 3)
        if rank == 0:
            with in_graph():
                dist.all_reduce(x, group=group)
                _flag("issued").set()
                _flag("found").wait(SOON_S)
                return got(x.tolist if reads else torch_xla.sync), x.tolist(), got(x.tolist)
        if rank == 1:
            _flag("issued").wait(SOON_S)
            wrong = {
                "shape": lambda: dist.all_reduce(y, group=group),
                "barrier": lambda: dist.barrier(group=group),
            }[other]
            found = got(wrong)
            _flag("found").set()
            return found
        return None


def goes_on_elsewhere(rank: int) -> Any:
    """1 loses a call of [1, 2] with one of [0, 1], and goes on with its next one there."""
    with _World(rank):
        first, second = _group(0, 1), _group(1, 2)
        x, y, z = _full(rank + 1), _full(10 * (rank + 1)), _full(1000 * (rank + 1))
        if rank == 0:
            time.sleep(0.3)
            return [got(lambda: dist.barrier(group=first))]
        lost = [(y, second)] if rank == 2 else [(x, first), (y, second)]
        return [got(_together(*lost)), got(_together((z, second)))]


def comes_late_with_something(rank: int) -> Any:
    """[0, 1, 2] fails between 0 and 1; 2 comes to it with a call of [2, 3] pending."""
    with _World(rank):
        first, second, unhurt = _group(0, 1, 2), _group(2, 3), _group(2, 3)
        x, y, z = _full(1, 2 + (rank == 1)), _full(rank), _full(rank)
        found = []
        if rank in (0, 1):
            found.append(got(_together((x, first))))
        if rank == 2:
            time.sleep(0.5)
            with in_graph():
                dist.all_reduce(y, group=second)
                found.append(got(lambda: dist.all_reduce(x, group=first)))
                found.append(y.tolist())
        if rank == 3:
            found.append(got(_together((y, second))))
        if rank >= 2:
            found.append(got(_together((y, second))))
            found.append(got(_together((z, unhurt))))
        return found


def two_at_once(rank: int) -> Any:
    """[0, 1] and [2, 3] fail; 1 and 2 have a call of [1, 2] pending, which is lost with either."""
    with _World(rank):
        found = []
        for _ in range(3):
            groups = [_group(0, 1), _group(1, 2), _group(2, 3)]
            own = [group for group in groups if rank in dist.get_process_group_ranks(group)]
            calls = [(_full(1, 3 if rank in (0, 3) else 2), group) for group in own]
            found.append(got(_together(*calls)))
            dist.barrier()
        return found


def helper_fails(rank: int, how: str) -> Any:
    """What a rank's helper waits for fails while its own thread has a call pending: that runs."""
    with _World(rank):
        with_2, with_1 = _group(0, 2), _group(0, 1)
        x, m = _full(rank + 1), _full(1, 4 if rank == 0 else 5)
        torch_xla.sync(wait=True)
        if rank == 2:
            _flag(how).wait(SOON_S)
            return got(lambda: dist.isend(m, 0, group=with_2).wait())
        if rank == 1:
            _together((x, with_1))()
            return x.tolist()
        work, heard = dist.irecv(m, 2, group=with_2), []
        helper = threading.Thread(target=lambda: heard.append(got(work.wait)))
        if how != "waits later":
            helper.start()
            time.sleep(0.3)
        with in_graph():
            dist.all_reduce(x, group=with_1)
            if how == "waits later":
                helper.start()  # it may not run what is pending
            else:
                _flag(how).set()
            helper.join()
            _flag(how).set()
            return heard, x.tolist()


def loses_alone(rank: int, of_group: bool) -> Any:
    """0 has no memory, and loses its call to that: its next one is not what 1 waits with."""
    with _World(rank):
        groups = [_group(0, 1) for _ in range(2)]

        def total(x: torch.Tensor, group: Any) -> list[float]:
            with in_graph():
                if of_group:
                    dist.all_reduce(x, group=group)
                else:
                    x = xm.all_reduce(xm.REDUCE_SUM, x)
                return x.tolist()

        if rank == 0:
            huge = torch.zeros(2**45, device=torch_xla.device()) + 1
            torch_xla.sync()  # what is in this step is lost to torch_xla as well: nothing else is
            with pytest.raises(RuntimeError, match="Out of memory"):
                total(_full(1), groups[0])
            del huge
        found = [got(lambda: total(_full(10), groups[0]))]
        return [*found, got(lambda: total(_full(100), groups[1]))]


def _compiled(x: torch.Tensor, group: Any) -> torch.Tensor:
    return functional.all_reduce(x * 2, "sum", group) + 1


def crossed(rank: int) -> Any:
    """Two groups of the same ranks: what is compiled for one is not for the other."""
    with _World(rank):
        groups = [_group(0, 1), _group(0, 1)]
        step = torch.compile(_compiled, backend="openxla")
        found = [step(_full(rank), group).tolist() for group in groups for _ in range(2)]
        values = [_full(rank), _full(10 * rank)]
        order = [0, 1] if rank == 0 else [1, 0]
        return [*found, *(got(lambda i=i: step(values[i], groups[i]).tolist()) for i in order)]


def compiled_again(rank: int) -> Any:
    """What is compiled runs in groups that were made anew, after their like have broken."""
    step = torch.compile(_compiled, backend="openxla")
    found = []
    for time_ in range(3):
        with _World(rank):
            group = _group(0, 1)
            found.append(step(_full(rank), dist.group.WORLD).tolist())
            if rank < 2:
                found.append(step(_full(rank), group).tolist())
                if time_ < 2:
                    found.append(got(_together((_full(1, 2 + rank), group))))
                    found.append(got(lambda g=group: step(_full(rank), g).tolist()))
    return found


# At random.


@dataclasses.dataclass(frozen=True)
class Plan:
    """Calls of groups in one order on all ranks, of which `who` makes the one at `wrong` wrong."""

    groups: list[list[int]]
    calls: list[int]  # by their groups
    runs: set[int]  # after which calls ranks run their graphs
    reads: bool  # or read
    wrong: int
    who: int
    how: str
    pending: bool
    late: list[tuple[int, float]]  # by rank: before which call, and how long


def plan(seed: int, world: int) -> Plan:
    dice = random.Random(seed)
    groups = [
        sorted(dice.sample(range(world), dice.randint(2, max(2, world - 1))))
        for _ in range(dice.randint(2, 4))
    ]
    calls = [dice.randrange(len(groups)) for _ in range(dice.randint(4, 9))]
    wrong = dice.randrange(len(calls))
    return Plan(
        groups,
        calls,
        {i for i in range(len(calls)) if dice.random() < 0.3} | {len(calls) - 1},
        dice.random() < 0.5,
        wrong,
        dice.choice(groups[calls[wrong]]),
        dice.choice(["shape", "barrier", "max", "nothing"]),
        dice.random() < 0.8,
        [(dice.randrange(len(calls)), dice.choice([0.0, 0.0, 0.02, 0.1])) for _ in range(world)],
    )


def _value(rank: int, call: int) -> float:
    """Calls that are mixed up have other sums: of each rank's number a part of its own."""
    return float((call + 1) * 32**rank)


def _hurt_by(one: Plan) -> set[int]:
    """The groups that may break: those of which ranks may have lost calls."""
    hurt = {one.calls[one.wrong]}
    while one.pending:
        ranks = {rank for group in hurt for rank in one.groups[group]}
        more = {i for i, group in enumerate(one.groups) if ranks.intersection(group)}
        if more == hurt:
            break
        hurt = more
    return hurt if one.how != "nothing" else set()


class _Run:
    """A rank's run of a plan. It goes on after errors: nobody waits for one who has stopped."""

    def __init__(self, rank: int, one: Plan) -> None:
        self.rank, self.plan = rank, one
        self.groups = [_group(*members) for members in one.groups]
        self.results: list[tuple[int, torch.Tensor]] = []
        self.wrong: list[str] = []
        self.may_break = _hurt_by(one)
        self.raised: set[int] = set()  # calls
        self.heard = False  # of anything

    def tried(self, call: Callable[[], Any], what: str, index: int | None = None) -> None:
        began = time.monotonic()
        try:
            call()
        except RanksDisagree as error:
            if type(error).__name__ == "CollectiveTimeoutError":
                self.wrong.append(f"{what}: {error}")
            own = {i for i, group in enumerate(self.plan.groups) if self.rank in group}
            if not self.may_break & (own if index is None else {self.plan.calls[index]}):
                self.wrong.append(f"{what}: {error}")
            self.heard = True
            if index is not None:
                self.raised.add(index)
        if time.monotonic() - began > SOON_S:
            self.wrong.append(f"{what} took {time.monotonic() - began:.1f} s")

    def call(self, i: int) -> None:
        group = self.groups[self.plan.calls[i]]
        x = _full(_value(self.rank, i))
        self.results.append((i, x))
        if i != self.plan.wrong or self.rank != self.plan.who or self.plan.how == "nothing":
            self.tried(lambda: dist.all_reduce(x, group=group), f"call {i}", i)
        elif self.plan.how == "barrier":
            self.tried(lambda: dist.barrier(group=group), f"call {i}", i)
        elif self.plan.how == "shape":
            self.tried(lambda: dist.all_reduce(_full(1, 5), group=group), f"call {i}", i)
        else:
            self.tried(lambda: dist.all_reduce(x, dist.ReduceOp.MAX, group=group), f"call {i}", i)

    def run(self) -> list[str]:
        for i, group in enumerate(self.plan.calls):
            at, late_s = self.plan.late[self.rank]
            if at == i:
                time.sleep(late_s)
            if self.rank in self.plan.groups[group]:
                self.call(i)
            if i in self.plan.runs and self.plan.pending:
                run = self.results[-1][1].tolist if self.plan.reads and self.results else None
                self.tried(run or torch_xla.sync, f"run after {i}")
        for i, x in self.results:
            self.tried(lambda i=i, x=x: self.check(i, x.tolist()), f"read {i}")
        return self.wrong

    def check(self, i: int, value: list[float]) -> None:
        group = self.plan.calls[i]
        right = sum(_value(member, i) for member in self.plan.groups[group])
        made_wrong = (i, self.rank) == (self.plan.wrong, self.plan.who) and self.may_break
        if value == [right] * 2 and not made_wrong:
            return
        if group in self.may_break and self.heard and all(math.isnan(x) for x in value):
            return
        if value == [_value(self.rank, i)] * 2 and (i in self.raised or made_wrong):
            return  # the call was none
        self.wrong.append(f"call {i} gives {value}, not {right}")


def at_random(rank: int, seeds: range, world: int) -> list[str]:
    """What is wrong, in words."""
    wrong: list[str] = []
    for seed in seeds:
        one = plan(seed, world)
        with _World(rank):
            run = _Run(rank, one)
            if one.pending:
                with in_graph():
                    run.run()
            else:
                run.run()
        wrong += [f"program {seed}, rank {rank}: {line}\n{one}" for line in run.wrong]
    return wrong
