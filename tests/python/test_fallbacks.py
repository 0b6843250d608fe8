"""Fallback rules give what the native ones give, on every kind of device that has its own.

What is lowered for a TPU or a GPU runs here on XLA:CPU: an HLO module means the same everywhere,
and where all ranks run one executable its instructions meet without a channel. An ordinary
collective in each graph sees to that: ranks that meet share one. Rules are forced, so that
fallbacks run also where a device would not need them.
"""

import hypothesis
import numpy as np
import pytest
import torch
import torch_xla
import worlds
from hypothesis import strategies as st
from operands import any_bits, exact_values
from oracle import (
    BITWISE,
    COMPLEX,
    DTYPES,
    INTEGERS,
    Case,
    differences,
    issue,
    longest,
    put,
    reduce_kinds,
    take,
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
    by_rank = worlds.run(world, issue_forced, cases, target, world, rule, timeout_s=120)
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
def reduction(draw, dtype, groups, world):
    kinds = reduce_kinds(dtype)
    sizes = {*map(len, groups or [range(world)])}
    if dtype in COMPLEX and any(size & (size - 1) for size in sizes):
        kinds = [kind for kind in kinds if kind != "average"]  # complex division rounds
    kind = draw(st.sampled_from(kinds))
    fields = {"reduce_type": kind, "groups": groups}
    if dtype != "pred" and draw(st.booleans()):
        fields["scale"] = draw(st.sampled_from([3, 2] if dtype in INTEGERS else [0.5, -2]))
    if kind == "premultiplied_sum":
        fields["factor"] = draw(st.sampled_from([2, 3] if dtype in INTEGERS else [-1, 0.5]))
    return fields


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
    dtype = draw(st.sampled_from([d for d in DTYPES if d != "c128" or "tpu" not in target]))
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3))
    groups = draw(groups_of(world))
    members = longest(groups, world)
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    fields = {"groups": groups}
    if op == "all_gather":
        fields["dim"] = axis
    elif op == "all_reduce":
        fields = draw(reduction(dtype, groups, world))
    elif op == "reduce_scatter":
        fields = draw(reduction(dtype, groups, world)) | {"scatter_dim": axis}
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
    if kind := fields.get("reduce_type"):
        return Case(op, [exact_values(rng, dtype, shape, kind) for _ in range(world)], fields)
    return Case(op, [any_bits(rng, dtype, shape) for _ in range(world)], fields)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rule", ["fallback", None])
def test_any_calls(rule, target, world):
    @hypothesis.settings(
        max_examples=12,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(st.lists(calls(world, target), min_size=6, max_size=10))
    def run(batch):
        check(batch, target, world, rule)

    run()
