"""Launches that fail, and are launched again: random calls of xla_model on ranks that are threads.

A launch is steps, of one to three calls and a way to run the graph, the same on all ranks but for
at most one fault. `plan(seed, world)` makes it, `run_plan(rank, seed, world)` carries it out on a
rank, and `check` says what is wrong with what came of it. None of the ranks catches anything.
"""

from __future__ import annotations

import dataclasses
import random
import time
from typing import Any

import numpy as np
import torch
import torch_xla

from torch_xla_cc import xla_model as xm

FAULTS = {
    "none": 4,
    "differ": 4,
    "omit": 2,
    "swap": 2,
    "read": 2,
    "raise": 2,
    "return": 2,
    "late": 1,
    "too late": 1,
}
LIMIT_S = 30.0
SHORT_S = 1.0
OPS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute"]
WAYS = ["sync", "item", "cpu", "print", "wait"]


class OwnError(Exception):
    """What a rank raises itself."""


@dataclasses.dataclass(frozen=True)
class Call:
    op: str
    columns: int
    kind: str
    halves: bool  # in two groups, of every other rank


@dataclasses.dataclass(frozen=True)
class Plan:
    seed: int
    world: int
    steps: tuple[tuple[Call, ...], ...]
    fault: str
    rank: int
    step: int
    other: Call

    def limit_s(self) -> float:
        """Of the launch."""
        return SHORT_S if self.fault == "too late" else LIMIT_S


def _call(rng: random.Random, world: int) -> Call:
    halves = world == 4 and rng.random() < 0.3
    return Call(rng.choice(OPS), rng.choice([1, 3]), rng.choice(["sum", "max"]), halves)


def _text(call: Call) -> tuple[Any, ...]:
    reduces = call.op in ("all_reduce", "reduce_scatter")
    of_all = call.op == "collective_permute"  # which has no groups
    return call.op, call.columns, call.kind if reduces else "", call.halves and not of_all


def plan(seed: int, world: int) -> Plan:
    rng = random.Random(f"launch {seed}/{world}")
    steps = [tuple(_call(rng, world) for _ in range(rng.randint(1, 3))) for _ in range(4)]
    steps = steps[: rng.randint(1, 4)]
    fault = rng.choices(list(FAULTS), list(FAULTS.values()))[0]
    rank, step = rng.randrange(world), rng.randrange(len(steps))
    first = steps[step][0]
    if fault in ("swap", "read"):  # of two that are different, and of the world
        whole = dataclasses.replace(first, halves=False)
        second = dataclasses.replace(whole, columns=4 - whole.columns)
        steps[step] = (whole, second)
    other = dataclasses.replace(first, columns=4 - first.columns)
    if rng.random() < 0.5:
        other = dataclasses.replace(first, op=OPS[(OPS.index(first.op) + 1) % len(OPS)])
    return Plan(seed, world, tuple(steps), fault, rank, step, other)


def groups_of(call: Call, world: int) -> list[list[int]] | None:
    return [list(range(0, world, 2)), list(range(1, world, 2))] if call.halves else None


def operand(rank: int, number: int, call: Call, world: int) -> Any:
    count = world * call.columns
    values = (np.arange(count) * 5 + rank * 3 + number) % 7
    return values.reshape(world, call.columns).astype(np.float32)


def _issue(call: Call, rank: int, number: int, world: int) -> torch.Tensor:
    x = torch.from_numpy(operand(rank, number, call, world)).to(torch_xla.device())
    groups = groups_of(call, world)
    result: Any
    if call.op == "all_reduce":
        result = xm.all_reduce(call.kind, x, groups=groups)
    elif call.op == "all_gather":
        result = xm.all_gather(x, groups=groups)
    elif call.op == "reduce_scatter":
        result = xm.reduce_scatter(call.kind, x, groups=groups)
    elif call.op == "all_to_all":
        result = xm.all_to_all(x, 0, 0, groups=groups)
    else:
        result = xm.collective_permute(x, [(i, (i + 1) % world) for i in range(world)])
    return result


def wanted(call: Call, rank: int, number: int, world: int) -> Any:
    members = list(range(world))
    if call.halves and call.op != "collective_permute":
        members = members[rank % 2 :: 2]
    inputs = [operand(member, number, call, world) for member in members]
    own, size = members.index(rank), len(members)
    if call.op == "collective_permute":
        return inputs[(own - 1) % size]
    if call.op == "all_gather":
        return np.concatenate(inputs)
    if call.op == "all_to_all":
        return np.concatenate([np.split(x, size)[own] for x in inputs])
    value = np.sum(inputs, axis=0) if call.kind == "sum" else np.max(inputs, axis=0)
    return value if call.op == "all_reduce" else np.split(value, size)[own]


def _run_graph(way: str) -> None:
    x = torch.ones(2, device=torch_xla.device()) + 1
    if way in ("sync", "wait"):
        torch_xla.sync(wait=way == "wait")
    elif way == "item":
        x.sum().item()
    elif way == "cpu":
        x.cpu()
    else:
        str(x)


def run_plan(rank: int, seed: int, world: int) -> list[list[Any]]:
    """The results of all calls, by step."""
    own, found = plan(seed, world), []
    ways = random.Random(f"{seed}/{rank % 2}")
    for step, calls in enumerate(own.steps):
        at_fault = own.rank == rank and own.step == step
        if at_fault and own.fault == "raise":
            raise OwnError(f"of rank {rank}")
        if at_fault and own.fault == "return":
            return found
        if at_fault and own.fault in ("late", "too late"):
            time.sleep(0.05 if own.fault == "late" else 2.5 * SHORT_S)
        numbered = list(enumerate(calls))
        if at_fault and own.fault == "differ":
            numbered[0] = (0, own.other)
        if at_fault and own.fault == "omit":
            del numbered[0]
        if at_fault and own.fault == "swap":
            numbered.reverse()
        results = []
        for number, call in numbered:
            results.append(_issue(call, rank, number, world))
            if at_fault and own.fault == "read":
                _run_graph("item")
        _run_graph(ways.choice(WAYS))
        found.append([result.cpu().numpy() for result in results])
    return found


def check(own: Plan, by_rank: list[Any] | None, error: BaseException | None) -> str:
    """What is wrong, or nothing."""
    kind = type(error).__name__ if error else "no error"
    if own.fault == "raise":
        of_rank = [f"raised by rank {own.rank} of {own.world}"]
        right = kind == "OwnError" and getattr(error, "__notes__", of_rank)[:1] == of_rank
        return "" if right else f"{kind} ({error}), but it must be OwnError, {of_rank}"
    if own.fault in ("differ", "omit", "swap", "read", "return"):
        known = ("CollectiveMismatchError", "RanksDisagree")
        return "" if kind in known else f"{kind} ({error}), but it must be one of {known}"
    if own.fault == "too late":
        return "" if kind == "CollectiveTimeoutError" else f"{kind} ({error}), but it must time out"
    if error is not None or by_rank is None:
        return f"{kind}: {error}"
    for rank, found in enumerate(by_rank):
        for step, calls in enumerate(own.steps):
            for number, call in enumerate(calls):
                right = wanted(call, rank, number, own.world)
                if not np.array_equal(found[step][number], right):
                    return f"rank {rank}, step {step}: {found[step][number]}, not {right}"
    return ""
