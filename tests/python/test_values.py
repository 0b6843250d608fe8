"""What the collectives give, against oracle.py, on 2, 4 and 8 virtual CPU devices.

Data movement is compared bit by bit, on operands of random bits: NaNs with payloads, -0.0 and
denormals among them. Integers wrap, so their reductions are equal in any order. Reductions of
floats are compared on operands whose result is exact in every order of reduction, and once more on
normal random ones within the bound of summation in any order.
"""

import numpy as np
import pytest
import torch
import torch_xla
import worlds
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
    put,
    reduce_kinds,
    take,
)

from torch_xla_cc import xla_model as xm

WORLDS = (2, 4, 8)


def group_forms(world, unequal=False):
    """One list of groups of every form."""
    ranks = list(range(world))
    forms = [
        None,
        ranks[::-1],  # scrambled: the order in the group is not that of the ranks
        [[rank] for rank in ranks],
    ]
    forms[1] = [ranks[::2][::-1] + ranks[1::2]]
    if world > 2:
        half = world // 2
        forms += [
            [ranks[:half], ranks[half:]],
            [ranks[0::2], ranks[1::2]],
            [[3, 0], [1, 2], *([rank + 1, rank] for rank in range(4, world, 2))],
        ]
    if unequal and world > 2:
        forms += [[ranks[:-1], ranks[-1:]], [[1], [3, 0, 2], *([ranks[4:]] if world > 4 else [])]]
    return forms


def random_bits(rng, dtype, shape):
    """Any value at all."""
    if dtype == "pred":
        return rng.integers(0, 2, shape).astype(bool)
    of = numpy_dtype(dtype)
    values = np.frombuffer(rng.bytes(int(np.prod(shape)) * of.itemsize), of).reshape(shape)
    # A transfer of f16 keeps no NaN but this one (test_what_transfers_lose).
    return np.where(np.isnan(values), of.type(np.nan), values) if dtype == "f16" else values


def exact_values(rng, dtype, shape, kind):
    """Values whose reduction is the same in every order; in floats because no step rounds."""
    if dtype == "pred" or dtype in INTEGERS:
        return random_bits(rng, dtype, shape)
    if kind == "mul":
        values = rng.choice([1, -1, 0.5, 2], shape)
        units = rng.choice([1, -1, 1j, -1j], shape)
    else:
        values = rng.integers(-8, 9, shape).astype(float)
        units = rng.choice([1, -1, 1j, 1 + 1j], shape)
    return (values * units if dtype in COMPLEX else values).astype(numpy_dtype(dtype))


def run(world, cases, bitwise=False):
    by_rank = worlds.run(world, issue_all, cases)
    found = []
    for case, results in zip(cases, zip(*by_rank, strict=True), strict=True):
        found += differences(case, list(results), bitwise)
    assert not found, "\n".join([f"{len(found)} wrong results", *found[:8]])


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
    for groups in group_forms(world):
        for split, concat in [(0, 0), (1, 1), (0, 1), (1, 0), (2, 0), (1, -1), (-1, 0)]:
            fields = {"split_dimension": split, "concat_dimension": concat, "groups": groups}
            yield "all_to_all", shape, fields
    yield "all_to_all", (world,), {"split_dimension": 0, "concat_dimension": 0}


def broadcast_cases(world):
    for groups in group_forms(world, unequal=True):
        # The root's position must be one that every group has.
        roots = [group[0] for group in groups] if groups else [0, world - 1]
        if groups and min(map(len, groups)) > 1:
            roots.append(groups[-1][-1 if len({*map(len, groups)}) == 1 else 1])
        for root in roots:
            for shape in [(), (3, 2)]:
                fields = {"root_ordinal": root, "groups": groups}
                yield "collective_broadcast", shape, fields


def transfer(rank):
    device = torch_xla.device()
    payload = torch.tensor([0x7C01, 0x7FFF], dtype=torch.int16).view(torch.float16)
    imaginary = torch.tensor([1 + 2j, 3j], dtype=torch.complex128)
    return payload.to(device).cpu().view(torch.int16), imaginary.to(device).cpu()


def test_what_transfers_lose():
    """The reasons for what random_bits and oracle.put go around; not ours, and the stock's too."""
    payload, imaginary = worlds.run(2, transfer)[0]
    assert payload.tolist() == [0x7E00, 0x7E00]
    assert imaginary.tolist() == [1, 0]


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
        Case(op, [random_bits(rng, dtype, shape) for _ in range(world)], fields)
        for op, shape, fields in MOVES[op](world)
    ]
    run(world, cases, bitwise=True)


def reductions(world, dtype, op):
    unequal = op == "all_reduce"
    shape = (world, 2 * world, world) if world < 8 else (8, 16)
    for kind in reduce_kinds(dtype):
        for index, groups in enumerate(group_forms(world, unequal)):
            if kind == "average" and dtype in COMPLEX and index > 4:
                continue  # complex division by 3 rounds: see test_reductions_round_little
            if index == 0 and unequal:
                yield (), kind, {"groups": groups}
            dims = range(len(shape)) if index == 0 else [index % len(shape)]
            for dim in [*dims, -1] if not unequal else [None]:
                fields = {"groups": groups} if dim is None else {"groups": groups, "scatter_dim": dim}
                yield shape, kind, fields
        if dtype != "pred":
            scale = 3 if dtype in INTEGERS else 0.5
            yield shape, kind, {"scale": scale}
            if kind == "premultiplied_sum":
                yield shape, kind, {"factor": 2, "scale": scale}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter"])
@pytest.mark.parametrize("world", WORLDS)
def test_reductions_that_no_order_changes(world, op, dtype):
    rng = np.random.default_rng(world)
    cases = [
        Case(
            op,
            [exact_values(rng, dtype, shape, kind) for _ in range(world)],
            {"reduce_type": kind, **fields},
        )
        for shape, kind, fields in reductions(world, dtype, op)
    ]
    run(world, cases)
