"""Fallback rules give what the native ones give, on every kind of device that has its own.

What is lowered for a TPU or a GPU runs here on XLA:CPU: an HLO module means the same everywhere,
and where all ranks run one executable its instructions meet without a channel. An ordinary
collective in each graph sees to that: ranks that meet share one. Rules are forced, so that
fallbacks run also where a device would not need them.
"""

import contextlib

import effort
import numpy as np
import pytest
import torch
import torch_xla
import worlds
from hypothesis import strategies as st
from operands import any_bits, exact_values
from oracle import (
    BITWISE,
    DTYPES,
    INTEGERS,
    Case,
    differences,
    issue,
    longest,
    meaning,
    numpy_dtype,
    put,
    reduce_kinds,
    take_all,
)

from torch_xla_cc import _C, lowering_for
from torch_xla_cc import xla_model as xm

TARGETS = ["cpu", "tpu:v5e", "gpu:h100"]
WORLDS = [2, 3, 4, 5, 8]


def issue_forced(rank, cases, target, world, rule):
    """All calls in one graph, for that target and by that rule; their results."""
    results = []
    meeting = torch.ones(1, device=torch_xla.device())
    for case in cases:
        x = put(case.inputs[rank])
        _C.set_forced_rule(rule)
        try:
            if target == "cpu":
                results.append(issue(case, x))
            else:
                with lowering_for(target, world):
                    results.append(issue(case, x))
        finally:
            _C.set_forced_rule(None)
    together = xm.all_reduce(xm.REDUCE_SUM, meeting)
    taken = take_all([*results, together])
    assert taken.pop().tolist() == [world]
    return taken


def check(cases, target, world, rule="fallback", tolerances=None):
    full = target == "cpu"  # whose cases have NaNs of all bits
    by_rank = worlds.run(world, issue_forced, cases, target, world, rule, timeout_s=120, full=full)
    found = []
    for i, case in enumerate(cases):
        bitwise = "reduce_type" not in case.fields
        tolerance = tolerances and tolerances[i]
        found += differences(case, [own[i] for own in by_rank], bitwise, tolerance)
    assert not found, "\n".join([f"{target}, {len(found)} wrong", *found[:6]])


# Groups of every form.


@st.composite
def groups_of(draw, world):
    """None, or any disjoint lists of ranks: of any sizes, in any order, with ranks in none."""
    if draw(st.integers(0, 4)) == 0:
        return None
    ranks = draw(st.permutations(range(world)))
    if draw(st.booleans()):  # of one size
        size = draw(st.integers(1, world))
        count = draw(st.integers(1, world // size))
        groups = [list(ranks[i * size : (i + 1) * size]) for i in range(count)]
    else:
        used = ranks[: draw(st.integers(1, world))]
        cuts = sorted(draw(st.sets(st.integers(1, len(used)))) | {len(used)})
        groups = [list(used[a:b]) for a, b in zip([0, *cuts], cuts, strict=False) if a < b]
    return [sorted(group) for group in groups] if draw(st.booleans()) else groups


@st.composite
def reduction(draw, dtype, groups, world, target):
    kinds = reduce_kinds(dtype)
    if target != "cpu":  # what runs here is XLA:CPU, which has no such instruction
        kinds = [kind for kind in kinds if kind not in BITWISE or (dtype, kind) in AND_OR]
    sizes = {*map(len, groups or [range(world)])}
    if dtype not in INTEGERS and any(size & (size - 1) for size in sizes):
        # Floats may be off by one in the last place (docs/spec.md, Reductions).
        kinds = [kind for kind in kinds if kind != "average"]
    kind = draw(st.sampled_from(kinds))
    fields = {"reduce_type": kind, "groups": groups}
    if dtype != "pred" and draw(st.booleans()):
        fields["scale"] = draw(st.sampled_from([3, 2] if dtype in INTEGERS else [0.5, -2]))
    if kind == "premultiplied_sum":
        fields["factor"] = draw(st.sampled_from([2, 3] if dtype in INTEGERS else [-1, 0.5]))
    return fields


AND_OR = [("pred", "and"), ("pred", "or")]
OPS = [
    "all_gather",
    "all_reduce",
    "reduce_scatter",
    "all_to_all",
    "collective_permute",
    "collective_broadcast",
    "send_recv",
]


@st.composite
def calls(draw, world, target):
    op = draw(st.sampled_from(OPS))
    # No program for a TPU takes c128.
    dtypes = [d for d in DTYPES if d != "c128" or "tpu" not in target]
    if target != "cpu" and op == "reduce_scatter":  # sums are those of the device's instruction
        dtypes = [d for d in dtypes if "f8" not in d]
    dtype = draw(st.sampled_from(dtypes))
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3))
    groups = draw(groups_of(world))
    members = longest(groups, world)
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    fields = {"groups": groups}
    if op == "all_gather":
        fields["dim"] = axis
    elif op == "all_reduce":
        fields = draw(reduction(dtype, groups, world, target))
    elif op == "reduce_scatter":
        fields = draw(reduction(dtype, groups, world, target)) | {"scatter_dim": axis}
        shape[axis] *= members
    elif op == "all_to_all":
        fields["split_dimension"] = axis
        fields["concat_dimension"] = draw(st.integers(-len(shape), len(shape) - 1))
        shape[axis] *= members
    elif op == "collective_broadcast":
        position = draw(st.integers(0, min(map(len, groups or [range(world)])) - 1))
        fields["root_ordinal"] = draw(st.sampled_from(groups))[position] if groups else position
    else:
        count = draw(st.integers(op == "send_recv", world))
        sources, targets = (draw(st.permutations(range(world)))[:count] for _ in range(2))
        fields = {"pairs": list(zip(sources, targets, strict=True))}
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = fields.get("reduce_type")
    if kind or target != "cpu":  # XLA:CPU's native instructions quieten NaNs of narrow floats
        values = [exact_values(rng, dtype, shape, kind or "sum") for _ in range(world)]
        return Case(op, values, fields)
    return Case(op, [any_bits(rng, dtype, shape) for _ in range(world)], fields)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(
    ("rule", "target"), [(None, "cpu"), *[("fallback", target) for target in TARGETS]]
)
def test_any_calls(rule, target, world):
    @effort.for_each(
        4, st.lists(calls(world, target), min_size=6, max_size=10), phases=effort.WITHOUT_SHRINKING
    )
    def run(batch):
        check(batch, target, world, rule)

    run()


# The ways that only larger operands are worth: what is chosen, and its values.

RING = [[rank, (rank + 1) % 8] for rank in range(8)]
ROWS = [
    # 512 KiB: two rounds of a smaller exchange.
    ("tpu:v5e", 4, "all_to_all", (0, 0, None, None), [1 << 17], ["all-to-all"] * 2),
    # 16 MiB: each block goes where it is meant to go, and nowhere else.
    ("tpu:v5e", 4, "all_to_all", (0, 0, None, None), [1 << 22], ["collective-permute"] * 3),
    ("cpu", 4, "all_to_all", (0, 0, None, None), [1 << 22], ["all-gather"] * 3),
    ("cpu", 4, "all_to_all", (0, 0, None, None), [1 << 10], ["all-gather"]),
    ("tpu:v5e", 4, "all_reduce", ("sum", 1.0, 1.0, None), [1 << 10], ["all-gather"]),
    (
        "gpu:h100",
        4,
        "all_reduce",
        ("sum", 1.0, 1.0, None),
        [1 << 20],
        ["reduce-scatter", "all-gather"],
    ),
    (
        "tpu:v5e",
        5,
        "all_gather",
        (0, [[4, 2, 0], [1, 3]]),
        [1 << 17],
        ["collective-permute"] * 2,
    ),
    ("tpu:v5e", 5, "all_gather", (0, [[4, 2, 0], [1, 3]]), [8], ["all-gather"]),
    ("tpu:v5e", 5, "all_reduce", ("sum", 1.0, 1.0, [[4, 2, 0], [1, 3]]), [8], ["all-reduce"]),
    ("cpu", 5, "all_gather", (0, [[4, 2, 0], [1, 3]]), [1 << 17], ["all-reduce"]),
    # What stands for members that a smaller group does not have is no factor.
    ("cpu", 5, "all_reduce", ("mul", 1.0, 1.0, [[4, 2, 0], [1, 3]]), [8], ["all-reduce"]),
    ("cpu", 5, "collective_permute", ([[0, 1], [1, 2], [2, 0]],), [64], ["all-reduce"] * 3),
    (
        "cpu",
        8,
        "collective_permute",
        ([[i, (i + 1) % 8] for i in range(8)],),
        [64],
        ["all-gather"] * 2,
    ),
]


def call_forced(rank, op, fields, target, world, inputs, rule="fallback"):
    x = put(inputs[rank])
    _C.set_forced_rule(rule)
    try:
        with lowering_for(target, world) if target != "cpu" else contextlib.nullcontext():
            result = getattr(_C, op)(x, *fields)
    finally:
        _C.set_forced_rule(None)
    together = xm.all_reduce(xm.REDUCE_SUM, torch.ones(1, device=torch_xla.device()))
    return take_all([result, together])[0]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}-{row[2]}-{row[4][0]}")
def test_ways_by_size(row):
    target, world, op, fields, shape, opcodes = row
    _C.set_forced_rule("fallback")
    try:
        with lowering_for(target, world):
            lowered = getattr(_C, f"lower_{op}")([(11, shape)], *fields)
    finally:
        _C.set_forced_rule(None)
    assert lowered["opcodes"] == opcodes
    rng = np.random.default_rng(7)
    inputs = [exact_values(rng, "f32", shape, "sum") for _ in range(world)]
    names = {
        "all_to_all": ("split_dimension", "concat_dimension", None, "groups"),
        "all_reduce": ("reduce_type", None, None, "groups"),
        "all_gather": ("dim", "groups"),
        "collective_permute": ("pairs",),
    }[op]
    case = Case(op, inputs, {name: v for name, v in zip(names, fields, strict=True) if name})
    results = worlds.run(world, call_forced, op, fields, target, world, inputs, timeout_s=120)
    assert differences(case, results, bitwise=True) == []


def without_exchanges_of_the_world(rank):
    no = ("tpu:v5e", "all_to_all", [], [], ["world"], False, "as over 128 chips")
    return _C.register_capability(*no) if rank == 0 else None


def with_them_again(rank, handle):
    assert rank > 0 or _C.unregister_capability(handle)


def test_reduction_of_64_bits_by_exchanges_in_two_stages():
    rng = np.random.default_rng(5)
    inputs = [any_bits(rng, "s64", [1 << 17]) for _ in range(4)]
    here = without_exchanges_of_the_world(0)
    with lowering_for("tpu:v5e", 4):
        lowered = _C.lower_all_reduce([(5, [1 << 17])], "max", 1.0, 1.0, None)
    with_them_again(0, here)
    assert lowered["opcodes"] == ["all-to-all", "all-to-all", "all-gather"]
    handle = worlds.run(4, without_exchanges_of_the_world)[0]
    try:
        check([Case("all_reduce", inputs, {"reduce_type": "max"})], "tpu:v5e", 4, None)
    finally:
        worlds.run(4, with_them_again, handle)


# Floats: docs/spec.md states how far native and fallback may be apart.

UNIT = {"f32": 2.0**-24, "bf16": 2.0**-8, "f16": 2.0**-11, "f64": 2.0**-53}


@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter"])
def test_floats_within_the_stated_bound(op, target, dtype):
    world = 4
    rng = np.random.default_rng(11)
    # Half the distance of the type's numbers at 1 for each of the g - 1 additions, twice.
    inputs = [rng.standard_normal([8, 33]).astype(numpy_dtype(dtype)) for _ in range(world)]
    case = Case(op, inputs, {"reduce_type": "sum"})
    native = worlds.run(world, issue_forced, [case], "cpu", world, "native", timeout_s=120)
    fallback = worlds.run(world, issue_forced, [case], target, world, "fallback", timeout_s=120)
    magnitude = sum(np.abs(x.astype(np.float64)) for x in inputs)
    bounds = Case(op, [magnitude / world] * world, {"reduce_type": "sum"})
    for rank, bound in enumerate(meaning(bounds)):
        apart = np.abs(native[rank][0].astype(np.float64) - fallback[rank][0].astype(np.float64))
        assert np.all(apart <= 2 * (world - 1) * UNIT[dtype] * bound), (rank, apart.max())
