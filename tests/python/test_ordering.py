"""Ranks on threads: their collectives meet in program order, whatever else is in their graphs.

XLA:CPU matches collectives by order, keeps no order by itself, compares nothing, and aborts the
process when ranks miss each other. None of that may show. What happens when the ranks really do
different things is in test_disagree.py.
"""

import random

import numpy as np
import pytest
import torch
import torch_xla
import worlds
from oracle import Case, differences, issue, put, take, take_all, to_numpy
from torch_xla.debug import metrics

from torch_xla_cc import xla_model as xm

RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
HALVES = [[0, 1], [2, 3]]
CALLS = [
    ("all_gather", {"dim": 0}),
    ("all_gather", {"dim": 1, "groups": HALVES}),
    ("all_reduce", {"reduce_type": "sum"}),
    ("all_reduce", {"reduce_type": "max", "groups": [[0, 2], [1, 3]]}),
    ("reduce_scatter", {"reduce_type": "sum", "scatter_dim": 0}),
    ("all_to_all", {"split_dimension": 0, "concat_dimension": 1}),
    ("collective_permute", {"pairs": RING}),
    ("collective_broadcast", {"root_ordinal": 2}),
    ("send_recv", {"pairs": RING[:2]}),
]


def check(calls, inputs, results):
    """`inputs` and `results`: by rank, one array a call."""
    found = []
    for i, (op, fields) in enumerate(calls):
        case = Case(op, [own[i] for own in inputs], fields)
        found += differences(case, [own[i] for own in results])
    assert not found, "\n".join(found[:8])


def layouts(rank, way):
    """The same values on all ranks, which XLA has in other layouts if it can choose."""
    rows = torch.arange(15.0).reshape(5, 3).to(torch_xla.device())
    columns = torch.arange(15.0).reshape(5, 3).t().contiguous().to(torch_xla.device())
    torch_xla.sync()
    one = torch.eye(5).to(torch_xla.device())
    x = {
        "is": lambda: rows,
        "transposed": lambda: columns.t(),
        "multiplied": lambda: one @ rows,
        "multiplied and transposed": lambda: (rows.t() @ one).t(),
        "permuted": lambda: columns.reshape(3, 5, 1).permute(1, 2, 0).reshape(5, 3),
    }[way[rank]]()
    results = [
        xm.all_gather(x, dim=1),
        xm.all_reduce("sum", x),
        xm.reduce_scatter("sum", x.repeat(4, 1), 1.0, 0, 4),
        xm.all_gather(x.t(), dim=0),
    ]
    return [result.cpu().numpy() for result in results]


WAYS = ["is", "transposed", "multiplied", "multiplied and transposed", "permuted"]


@pytest.mark.parametrize("turn", range(len(WAYS)))
def test_ranks_agree_on_layouts(turn):
    """No layout is pinned, and each rank compiles a program of its own."""
    x = np.arange(15.0, dtype=np.float32).reshape(5, 3)
    for results in worlds.run(4, layouts, (WAYS[turn:] + WAYS[:turn])[:4]):
        gathered, total, part, turned = results
        assert (gathered == np.concatenate([x] * 4, 1)).all()
        assert (total == 4 * x).all()
        assert (part == 4 * x).all()
        assert (turned == np.concatenate([x.T] * 4)).all()


# Constants: XLA folds an all-gather of a constant, on the rank that has one.

FILLS = {
    "zeros": lambda device: torch.zeros(4, 4, device=device),
    "ones": lambda device: torch.ones(4, 4, device=device),
    "full": lambda device: torch.full((4, 4), 2.5, device=device),
    "scalar": lambda device: torch.tensor(3.0, device=device) + torch.zeros(4, 4, device=device),
    "counted": lambda device: torch.arange(16.0, device=device).reshape(4, 4),
    "data": lambda device: torch.tensor(range(100, 116)).float().reshape(4, 4).to(device),
}


def call_with(rank, fills):
    device = torch_xla.device()
    return take_all(
        [issue(Case(op, [], fields), FILLS[fills[rank]](device)) for op, fields in CALLS]
    )


@pytest.mark.parametrize(
    "fills",
    [
        ["zeros", "data", "data", "data"],
        ["data", "zeros", "ones", "data"],
        ["zeros", "ones", "zeros", "ones"],
        ["zeros"] * 4,
        ["full", "scalar", "counted", "zeros"],
    ],
    ids="-".join,
)
def test_constants_on_some_ranks(fills):
    inputs = [[to_numpy(FILLS[fill](torch.device("cpu")))] * len(CALLS) for fill in fills]
    check(CALLS, inputs, worlds.run(4, call_with, fills))


# Different graphs around the same independent collectives.


def own_arithmetic(rng, x, value):
    """A random chain on the tensor, and the same in NumPy: exact on small whole numbers."""
    for _ in range(rng.randrange(5)):
        number = float(rng.randrange(1, 5))
        op = rng.choice(["add", "subtract", "negative", "minimum", "transpose"])
        if op == "add":
            x, value = x + number, value + number
        elif op == "subtract":
            x, value = number - x, number - value
        elif op == "negative":
            x, value = -x, -value
        elif op == "minimum":
            x, value = torch.clamp(x, max=number), np.minimum(value, number)
        else:
            x, value = x.t().contiguous(), value.T
    return x, value


def different_programs(rank, seeds):
    """Per seed: the arrays that went into five collectives, and those that came out."""
    programs = []
    for seed in seeds:
        common, own = random.Random(seed), random.Random(1000 * seed + rank)
        calls = common.choices(CALLS, k=5)
        aside = torch.ones(8, 8, device=torch_xla.device())
        values, results = [], []
        for i, (op, fields) in enumerate(calls):
            value = np.arange(16, dtype=np.float32).reshape(4, 4) + 10 * rank + i
            x, value = own_arithmetic(own, put(value), value)
            for _ in range(own.randrange(3)):
                aside = torch.sin(aside) + x.sum()
            values.append(value.astype(np.float32))
            results.append(issue(Case(op, [], fields), x))
        own.shuffle(order := list(range(5)))
        extra = [results[i] * 2 + aside[0, 0] for i in order[: own.randrange(5)]]
        taken = take_all([*results, *extra])
        programs.append((values, taken[:5]))
    return programs


def test_independent_collectives_of_ranks_whose_graphs_differ():
    seeds = range(25)
    by_rank = worlds.run(4, different_programs, seeds, timeout_s=150)
    for i, seed in enumerate(seeds):
        calls = random.Random(seed).choices(CALLS, k=5)
        check(calls, [own[i][0] for own in by_rank], [own[i][1] for own in by_rank])


# Reads in the middle, which run the graph past torch_xla.sync().

READS = {
    "item": lambda y: y.sum().item(),
    "cpu": lambda y: y.cpu().sum().item(),
    "to": lambda y: y.to("cpu").sum().item(),
    "copy_": lambda y: torch.empty(y.shape).copy_(y).sum().item(),
    "print": lambda y: (print(y), 24.0)[1],
    "repr": lambda y: sum(eval(repr(y).partition("(")[2].partition("]")[0] + "]")),
    "format": lambda y: float(f"{y.sum():.1f}"),
    "tolist": lambda y: sum(y.tolist()),
    "nonzero": lambda y: 24.0 * len((y == 6).nonzero()) / 4,
    "mask": lambda y: y[y > 0].sum().item(),
    "float": lambda y: float(y.sum()),
    "int": lambda y: int(y.sum()),
    "bool": lambda y: 24.0 if (y == 6).all() else 0.0,
    "equal": lambda y: 24.0 * torch.equal(y, torch.full((4,), 6.0, device=y.device)),
    "iterate": lambda y: sum(float(value) for value in y),
    "numpy": lambda y: float(np.asarray(y.cpu()).sum()),
    "unique": lambda y: 4 * y.unique().sum().item(),
    "masked_select": lambda y: y.masked_select(y > 0).sum().item(),
    "operator of the CPU": lambda y: 6.0 * torch.histc(y, 2, 0, 10).max().item(),
}


def read_between(rank, name, readers):
    x = torch.full((4,), float(rank), device=torch_xla.device())
    y = xm.all_reduce("sum", x)  # 0 + 1 + 2 + 3
    gathered = xm.all_gather(x[:1])
    read = READS[name](y) if rank in readers else None
    torch_xla.sync()
    after = xm.collective_permute(y + rank, RING)
    if len(readers) == 4:
        xm.all_reduce("sum", after).sum().item()
    return read, gathered.tolist(), after.tolist()


@pytest.mark.parametrize("readers", [[2], [0, 1, 2, 3]], ids=str)
@pytest.mark.parametrize("name", READS)
def test_reads_in_the_middle(name, readers):
    for rank, (read, gathered, after) in enumerate(worlds.run(4, read_between, name, readers)):
        assert read == (24.0 if rank in readers else None)
        assert gathered == [0, 1, 2, 3]
        assert after == [6.0 + (rank - 1) % 4] * 4


def read_aside(rank):
    """One rank reads what no collective has made."""
    x = torch.full((4,), float(rank), device=torch_xla.device())
    other = torch.ones(3, device=torch_xla.device()) * 2
    y = xm.all_gather(x)
    count = other.sum().item() if rank == 3 else 6.0
    return count, take(y).sum()


def test_read_of_another_tensor_on_one_rank():
    assert worlds.run(4, read_aside) == [(6.0, 24.0)] * 4


def drop_results(rank, keepers):
    x = put(np.arange(16, dtype=np.float32).reshape(4, 4) + rank)
    for op, fields in CALLS:
        issue(Case(op, [], fields), x + 1)
    kept = xm.all_gather(x)
    last = xm.all_reduce("sum", x)
    total = (kept * 2).sum() if rank in keepers else None
    del kept
    torch_xla.sync()
    for op, fields in CALLS[:4]:
        issue(Case(op, [], fields), x)
    return take(last), None if total is None else float(total)


@pytest.mark.parametrize("keepers", [[], [2], [0, 1, 2, 3]], ids=str)
def test_results_that_nobody_or_one_rank_uses(keepers):
    xs = [np.arange(16, dtype=np.float32).reshape(4, 4) + rank for rank in range(4)]
    for rank, (last, total) in enumerate(worlds.run(4, drop_results, keepers)):
        assert np.array_equal(last, sum(xs))
        assert total == (2 * np.sum(xs) if rank in keepers else None)


# One compile for all ranks.


def compiles(rank):
    return {name: metrics.counter_value(name) or 0 for name in ("UncachedCompile", "CachedCompile")}


def steps(rank, world, count, read, groups):
    weight = torch.ones(4 * world, 3).to(torch_xla.device())
    for _ in range(count):
        shard = xm.reduce_scatter("sum", weight + 1, scale=1 / world, groups=groups)
        weight = xm.all_gather(shard, groups=groups) * 0.5
        norm = xm.all_reduce("max", weight.abs().max(), groups=groups)
        if read:
            norm.item()
        else:
            torch_xla.sync()
    return count, float(norm)


@pytest.mark.parametrize("groups", [None, "pairs"])
@pytest.mark.parametrize("read", [False, True], ids=["sync", "item"])
@pytest.mark.parametrize("world", [4, 8])
def test_one_compile_for_all_ranks_and_steps(world, read, groups):
    pairs = [[rank, rank + 1] for rank in range(0, world, 2)]
    with worlds.World(world) as fresh:
        before = fresh.run(compiles)[0]
        results = fresh.run(steps, world, 10, read, pairs if groups else None)
        after = fresh.run(compiles)[0]
    assert len(set(results)) == 1
    assert after["UncachedCompile"] - before["UncachedCompile"] == 1
    # The others look it up: every rank, every step, less the compile itself.
    assert after["CachedCompile"] - before["CachedCompile"] == 10 * world - 1
