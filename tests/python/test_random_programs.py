"""Random programs: ranks that make the same collective calls in one order, and differ in all
else, never wait for each other for good, and get what NumPy says.

Common to the ranks of a program: the calls (all ops, tensors and lists, dtypes, the world and
groups that change from call to call) and where all of them run their graphs. Each rank's own: which
operands are constants, arithmetic before a call, work aside, branches, naps, how it runs its graph
where all do (a step, or a read of some kind), and further steps where it has no collective pending.

Each day has programs of its own: effort.py.
"""

import dataclasses
import functools
import itertools
import random
import time

import effort
import numpy as np
import pytest
import torch
import torch_xla
import worlds
from operands import exact_values
from oracle import (
    BITWISE,
    Case,
    differences,
    issue,
    put,
    reduce_kinds,
    rows_of,
    take,
    take_all,
    to_torch,
)

from torch_xla_cc import xla_model as xm

# How many programs for each number of ranks: 75.
PROGRAMS = {2: 18, 3: 15, 4: 15, 5: 9, 6: 6, 7: 5, 8: 7}
MOST_CALLS = 30
DTYPES = ["f32", "f32", "bf16", "f64", "s32", "s64", "u8", "pred", "c64"]
OPS = ["all_gather", "all_reduce", "reduce_scatter", "all_to_all"]
OPS += ["collective_permute", "collective_broadcast", "send_recv"]
AS_LISTS = ["all_gather", "all_reduce", "reduce_scatter", "all_to_all", "collective_broadcast"]
UNEVEN = ["uneven_all_gather", "uneven_reduce_scatter", "uneven_all_to_all"]
WITH_UNEVEN = 0.2  # of the programs: there every rank has shapes, and compiles, of its own
# Their groups may be of different sizes.
UNEQUAL = ["all_reduce", "collective_broadcast", *UNEVEN]


@dataclasses.dataclass
class Call:
    cases: list[Case]  # one an operand; of a list if `listed`
    listed: bool
    constants: list[bool]  # by rank: whether the operand is a constant in the graph
    runs: bool  # whether all ranks run their graphs after it


def pairs_of(rng, world):
    targets = rng.sample(range(world), world)
    return [pair for pair in zip(range(world), targets, strict=True) if rng.random() < 0.7]


def groups_of(rng, world, unequal):
    """The world, or the ranks in any order and cut into groups of one size, or of any."""
    if rng.random() < 0.4:
        return None
    ranks = rng.sample(range(world), world)
    if unequal and rng.random() < 0.5:
        cuts = sorted({0, world, *(rng.randrange(world) for _ in range(2))})
    else:
        cuts = range(0, world + 1, rng.choice([n for n in range(1, world + 1) if world % n == 0]))
    groups = [ranks[a:b] for a, b in itertools.pairwise(cuts)]
    return groups if rng.random() < 0.3 else [sorted(group) for group in groups]


def fields_of(rng, op, dtype, world):
    """Random fields, and what the sizes of the two axes must be divisible by."""
    if op in ("collective_permute", "send_recv"):
        pairs = pairs_of(rng, world)
        if op == "collective_permute":
            return {"pairs": pairs}, 1
        return {"pairs": pairs or [(0, world - 1)], "tag": rng.randrange(3)}, 1
    groups = groups_of(rng, world, op in UNEQUAL)
    members = min(groups, key=len) if groups else list(range(world))
    fields = {"groups": groups}
    if op == "uneven_all_to_all":
        together = [[rank in group for rank in range(world)] for group in groups or [range(world)]]
        fields["sizes"] = [
            [rng.randrange(4) * any(g[i] and g[j] for g in together) for j in range(world)]
            for i in range(world)
        ]
    elif op in UNEVEN:
        fields["sizes"] = [rng.randrange(5) for _ in range(world)]
    if op in ("all_reduce", "reduce_scatter", "uneven_reduce_scatter"):
        # Averages round; XLA:CPU has no bitwise reductions of groups of unequal size.
        unequal = len({len(group) for group in groups or []}) > 1
        without = ("average", "premultiplied_sum", *(BITWISE if unequal else ()))
        kinds = [kind for kind in reduce_kinds(dtype) if kind not in without]
        fields["reduce_type"] = rng.choice(kinds)
    if op == "all_gather":
        fields["dim"] = rng.randrange(2)
    if op == "reduce_scatter":
        fields["scatter_dim"] = rng.randrange(2)
    if op == "all_to_all":
        fields |= {"split_dimension": rng.randrange(2), "concat_dimension": rng.randrange(2)}
    if op == "collective_broadcast":
        fields["root_ordinal"] = rng.choice(members)
    return fields, len(members) if op in ("reduce_scatter", "all_to_all") else 1


def a_call(rng, values, world, ops):
    op, dtype = rng.choice(ops), rng.choice(DTYPES)
    fields, divisor = fields_of(rng, op, dtype, world)
    listed = op in AS_LISTS and rng.random() < 0.3
    constants = [not listed and op not in UNEVEN and rng.random() < 0.2 for _ in range(world)]
    cases = []
    for _ in range(rng.randint(1, 3) if listed else 1):
        shape = [divisor * rng.randint(1, 2), divisor * rng.randint(1, 3)]
        shapes = [shape] * world
        if op in UNEVEN:
            rows = [rows_of(op, fields["sizes"], fields["groups"], i) for i in range(world)]
            shapes = [[n, shape[1]] for n in rows]
        kind = fields.get("reduce_type", "sum")
        inputs = [exact_values(values, dtype, shapes[rank], kind) for rank in range(world)]
        for rank, constant in enumerate(constants):
            if constant:
                inputs[rank][:] = inputs[rank].flat[0]
        cases.append(Case(op, inputs, fields))
    return Call(cases, listed, constants, rng.random() < 0.08)


@functools.lru_cache(maxsize=2)  # of all ranks on threads
def program(seed, world):
    rng, values = random.Random(f"{seed}/{world}"), np.random.default_rng([seed, world])
    # Few calls as often as many: 1 to 2, 2 to 5, 5 to 12, 12 to 30.
    count = min(MOST_CALLS, int(MOST_CALLS ** rng.random() + 0.5))
    ops = [*OPS, *UNEVEN] if rng.random() < WITH_UNEVEN else OPS
    return [a_call(rng, values, world, ops) for _ in range(count)]


# A rank's own.


def constant(value):
    """A tensor of one value, that is in the graph and not an input of it."""
    first = to_torch(value.reshape(-1)[:1])
    return torch.full(value.shape, first.item(), dtype=first.dtype, device=torch_xla.device())


def there_and_back(own, x):
    """Arithmetic that changes nothing, of another kind on each rank."""
    for _ in range(own.randrange(4)):
        way = own.randrange(4)
        if way == 0:
            x = x.t().contiguous().t()
        elif way == 1 and x.dtype == torch.bool:
            x = ~(~x)
        elif way == 1:
            x = torch.neg(torch.neg(x))
        elif way == 2:
            x = torch.cat([x[:1], x[1:]])
        elif x.dtype != torch.bool:
            x = (x + 3) - 3  # exact, or it wraps
    return x


def work_aside(own, aside):
    for _ in range(own.choice([0, 0, 1, 3])):
        if own.random() < 0.5:
            aside = torch.sin(aside) + own.choice([0.0, 1.0, 0.5, own.random()])
        else:
            aside = torch.where(aside > 0, aside @ aside.t() * 0.01, aside)
    return aside


def nap(own):
    if own.random() < 0.1:
        time.sleep(own.random() * 0.02)


def make(own, call, rank):
    """Issue the call on this rank; one result an operand."""
    operands = []
    for case in call.cases:
        value = case.inputs[rank]
        if call.constants[rank] and value.dtype.kind != "c":
            operands.append(constant(value))
        else:
            operands.append(there_and_back(own, put(value)))
    case = call.cases[0]
    if not call.listed:
        return [issue(case, operands[0])]
    if case.op == "collective_broadcast":
        xm.collective_broadcast(operands, **case.fields)
        return operands
    operand = {"all_reduce": "inputs", "reduce_scatter": "input"}.get(case.op, "value")
    return getattr(xm, case.op)(**{operand: operands}, **case.fields)


def run_graph(own, results, aside):
    """Run what is pending, in a way of this rank's own; then perhaps once more, alone."""
    way = own.randrange(5)
    if way == 0:
        torch_xla.sync(wait=own.random() < 0.5)
    elif way == 1:
        aside.sum().item()
    elif way == 2:
        aside.cpu()
    elif way == 3:
        take(results[own.randrange(len(results))])
    else:
        f"{aside[0, 0]}"
    for _ in range(own.choice([0, 0, 1, 2])):
        aside = work_aside(own, aside + 1)
        torch_xla.sync() if own.random() < 0.5 else aside[0, 0].item()
    return aside


def run_program(rank, seed, world):
    # Of two or three kinds, so that some ranks share a program and others do not.
    own = random.Random(f"{seed}/{rank % random.Random(seed).randint(1, 3)}")
    aside = torch.ones(4, 4, device=torch_xla.device())
    results = []
    for call in program(seed, world):
        nap(own)
        aside = work_aside(own, aside)
        results.append(make(own, call, rank))
        if own.random() < 0.2:
            aside = aside + results[-1][0].to(torch.float32).abs().sum() * 0
        if call.runs:
            aside = run_graph(own, results[-1], aside)
    flat = iter(take_all([result for of_call in results for result in of_call]))
    return [[next(flat) for _ in of_call] for of_call in results]


def check(seed, world, by_rank):
    wrong = []
    for i, call in enumerate(program(seed, world)):
        for j, case in enumerate(call.cases):
            wrong += differences(case, [own[i][j] for own in by_rank])
    assert not wrong, f"seed {seed} on {world} ranks:\n" + "\n".join(wrong[:5])


@pytest.mark.parametrize("world", PROGRAMS)
def test_ranks_that_make_the_same_calls_and_differ_in_all_else(world):
    first = effort.SEED * 1_000_000
    with worlds.World(world) as ranks:
        for seed in range(first, first + PROGRAMS[world] * effort.TIMES):
            try:
                by_rank = ranks.run(run_program, seed, world, timeout_s=240)
            except Exception as error:
                error.add_note(f"seed {seed} on {world} ranks: TORCH_XLA_CC_SEED={effort.SEED}")
                raise
            check(seed, world, by_rank)


def test_the_programs_are_of_all_kinds():
    counts = {world: 4 * count for world, count in PROGRAMS.items()}
    programs = [program(seed, world) for world, count in counts.items() for seed in range(count)]
    assert len(programs) == 300
    lengths = {len(calls) for calls in programs}
    assert min(lengths) == 1 and max(lengths) >= 28
    calls = [call for calls in programs for call in calls]
    assert {call.cases[0].op for call in calls} == {*OPS, *UNEVEN}
    for part in (
        [call for call in calls if call.listed],
        [call for call in calls if call.runs],
        [call for call in calls if any(call.constants)],
        [call for call in calls if call.cases[0].fields.get("groups")],
        [call for call in calls if call.cases[0].op in UNEVEN],
    ):
        assert len(part) > 100
