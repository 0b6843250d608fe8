"""Random calls of several groups that are pending while one of them fails (see pending.py)."""

from __future__ import annotations

import dataclasses
import math
import random
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch_xla
from pending import SOON_S, OneWorld, full, group_of

from torch_xla_cc import RanksDisagree
from torch_xla_cc.distributed import in_graph


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
        self.groups = [group_of(*members) for members in one.groups]
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
        x = full(_value(self.rank, i))
        self.results.append((i, x))
        if i != self.plan.wrong or self.rank != self.plan.who or self.plan.how == "nothing":
            self.tried(lambda: dist.all_reduce(x, group=group), f"call {i}", i)
        elif self.plan.how == "barrier":
            self.tried(lambda: dist.barrier(group=group), f"call {i}", i)
        elif self.plan.how == "shape":
            self.tried(lambda: dist.all_reduce(full(1, 5), group=group), f"call {i}", i)
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
        with OneWorld(rank):
            run = _Run(rank, one)
            if one.pending:
                with in_graph():
                    run.run()
            else:
                run.run()
        wrong += [f"program {seed}, rank {rank}: {line}\n{one}" for line in run.wrong]
    return wrong
