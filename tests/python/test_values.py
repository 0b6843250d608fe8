"""What the collectives give, against oracle.py, on 2, 4 and 8 virtual CPU devices.

Data movement is compared bit by bit, on operands of any bits: NaNs with payloads, -0.0, infinities
and denormals among them. Integers wrap, so their reductions are equal in any order. Reductions of
floats are compared on operands whose result is exact in every order of reduction, and once more on
random ones, within the bound of a reduction in any order.
"""

import os

import ml_dtypes
import numpy as np
import pytest
import torch
import torch_xla
import torchrun
import worlds
from operands import any_bits, exact_values, group_forms
from oracle import (
    BITWISE,
    COMPLEX,
    DTYPES,
    FLOATS,
    INTEGERS,
    Case,
    differences,
    issue_all,
    meaning,
    numpy_dtype,
    reduce_kinds,
)

WORLDS = (2, 4, 8)
ON_POD = torchrun.ON_POD in os.environ


def share(cases, world, dtype):
    """Every second or third case, to save time; with the next dtype others."""
    # complex128 takes four times as long: oracle.put and take.
    step = 5 if dtype == "c128" else {2: 3, 4: 2, 8: 3}[world]
    return list(cases)[list(DTYPES).index(dtype) % step :: step]


def run(world, cases, bitwise=False, tolerances=None):
    by_rank = worlds.run(world, issue_all, cases, full=True)
    found = []
    for i, case in enumerate(cases):
        results = [results[i] for results in by_rank]
        found += differences(case, results, bitwise, tolerances and tolerances[i])
    assert not found, "\n".join([f"{len(found)} wrong results", *found[:8]])


def transfer(rank):
    device = torch_xla.device()
    payload = torch.tensor([0x7C01, 0x7FFF], dtype=torch.int16).view(torch.float16)
    imaginary = torch.tensor([1 + 2j, 3j], dtype=torch.complex128)
    return payload.to(device).cpu().view(torch.int16), imaginary.to(device).cpu()


def test_what_transfers_lose():
    """Why any_bits and oracle.put avoid some values: torch_xla itself does not carry them."""
    payload, imaginary = worlds.run(2, transfer, full=True)[0]
    assert payload.tolist() == [0x7E00, 0x7E00]
    assert imaginary.tolist() == [1, 0]


def gather_cases(world):
    for groups in group_forms(world):
        for shape, dim in [((), 0), ((5,), 0), ((3, 1, 2), 0), ((3, 1, 2), 1), ((3, 1, 2), -1)]:
            yield "all_gather", shape, {"dim": dim, "groups": groups}


def permute_cases(world):
    ring = [(rank, (rank + 1) % world) for rank in range(world)]
    exchange = [(rank, rank ^ 1) for rank in range(world)]
    # Of some ranks only, shuffled, to oneself, none at all.
    for pairs in [ring, exchange, ring[::-1][1:], [(world - 1, 0)], [(1, 1)], []]:
        for shape in [(), (3, 2)]:
            yield "collective_permute", shape, {"pairs": pairs}
            if pairs:
                yield "send_recv", shape, {"pairs": pairs, "tag": len(pairs)}


def all_to_all_cases(world):
    shape = (world, 2 * world, world)
    axes = [(0, 1), (1, 0), (1, 1), (0, 0), (2, 0), (1, -1), (-1, 0)]
    for number, groups in enumerate(group_forms(world)):
        for split, concat in axes if groups is None else (axes[number], axes[number - 2]):
            fields = {"split_dimension": split, "concat_dimension": concat, "groups": groups}
            yield "all_to_all", shape, fields
    yield "all_to_all", (world,), {"split_dimension": 0, "concat_dimension": 0}


def broadcast_cases(world):
    for groups in group_forms(world, unequal=True):
        roots = [groups[-1][0]] if groups else [0, world - 1]
        if groups and min(map(len, groups)) > 1:
            roots.append(groups[-1][1])  # a position that every group has
        for root in roots:
            for shape in [(), (3, 2)]:
                fields = {"root_ordinal": root, "groups": groups}
                yield "collective_broadcast", shape, fields


MOVES = {
    "all_gather": gather_cases,
    "collective_permute and channels": permute_cases,
    "all_to_all": all_to_all_cases,
    "collective_broadcast": broadcast_cases,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", MOVES)
@pytest.mark.parametrize("world", WORLDS)
def test_data_movement_keeps_every_bit(world, op, dtype):
    rng = np.random.default_rng(len(op) * world)
    cases = [
        Case(op, [any_bits(rng, dtype, shape) for _ in range(world)], fields)
        for op, shape, fields in share(MOVES[op](world), world, dtype)
    ]
    run(world, cases, bitwise=True)


def reductions(world, dtype, op):
    forms = group_forms(world, unequal=op == "all_reduce")
    shape = (world, 2 * world, world) if world < 8 else (8, 16)
    for kind in reduce_kinds(dtype):
        rest = forms[1:]
        # Dividing a complex number by 3 rounds; and these kinds are refused (docs/capabilities.md).
        gathered = kind in BITWISE if dtype in INTEGERS else kind == "xor"
        if (kind == "average" and dtype in COMPLEX) or gathered:
            rest = [form for form in rest if len({*map(len, form)}) == 1]
        for index, groups in enumerate([None, *rest]):
            fields = {"reduce_type": kind, "groups": groups}
            if op == "all_reduce":
                yield shape, fields
                continue
            for dim in range(-1, len(shape)) if groups is None else [index % len(shape)]:
                yield shape, {**fields, "scatter_dim": dim}
        if op == "all_reduce":
            yield (), {"reduce_type": kind}
        if dtype != "pred":
            yield shape, {"reduce_type": kind, "scale": 3 if dtype in INTEGERS else 0.5}
    if dtype != "pred":
        yield shape, {"reduce_type": "premultiplied_sum", "factor": 2, "scale": 2}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter"])
@pytest.mark.parametrize("world", WORLDS)
def test_reductions_that_no_order_changes(world, op, dtype):
    rng = np.random.default_rng(world)
    cases = []
    for shape, fields in share(reductions(world, dtype, op), world, dtype):
        inputs = [exact_values(rng, dtype, shape, fields["reduce_type"]) for _ in range(world)]
        # Of three ranks they differ in the last bit from those of torch_xla's own XLA:CPU.
        if not (ON_POD and fields["reduce_type"] == "average" and dtype.startswith("f8")):
            cases.append(Case(op, inputs, fields))
    run(world, cases)


def tolerance(case):
    """What the result may be off by, element by element: the usual bound of rounding errors.

    Each of n operands, and each of at most n + 4 roundings on the way (the constants, the products
    with them, the steps of the reduction, the division), is off by no more than eps of what the
    reduction of the absolute values is; a complex product rounds three times. Next to zero the
    result has no more than the smallest denormal.
    """
    dtype = case.inputs[0].dtype
    info = ml_dtypes.finfo(np.zeros(0, dtype).real.dtype)
    steps = (len(case.inputs) + 4) * (3 if np.iscomplexobj(case.inputs[0]) else 1)
    wide = np.complex128 if np.iscomplexobj(case.inputs[0]) else np.float64
    sizes = Case(case.op, [np.abs(x.astype(wide)) for x in case.inputs], case.fields)
    slack = float(info.smallest_subnormal)
    return [steps * float(info.eps) * bound + slack for bound in meaning(sizes)]


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX])
@pytest.mark.parametrize("world", WORLDS)
def test_reductions_round_little(world, dtype):
    rng = np.random.default_rng(world)
    cases = []
    for op in ("all_reduce", "reduce_scatter"):
        for number, kind in enumerate(["sum", "mul", "average", "premultiplied_sum"]):
            forms = group_forms(world, unequal=op == "all_reduce")
            for groups in (None, forms[-1], forms[-1 - number % 3]):
                values = rng.uniform(0.5, 2, (world, 8, 3)) * rng.choice([1, -1], (world, 8, 3))
                if dtype in COMPLEX:
                    values = values * np.exp(1j * rng.uniform(0, 6, values.shape))
                fields = {"reduce_type": kind, "groups": groups, "scale": 0.7}
                if kind == "premultiplied_sum":
                    fields["factor"] = 0.3
                cases.append(Case(op, list(values.astype(numpy_dtype(dtype))), fields))
    run(world, cases, tolerances=[tolerance(case) for case in cases])
