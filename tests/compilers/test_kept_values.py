"""What all_gather and reduce_scatter compute in blocks and in stages, on 4 to 64 chips."""

import math
import random

import ml_dtypes
import numpy as np
import pytest
import replicas
import torch
import torch_xla

from torch_xla_cc import _C, functions, lowering_for
from torch_xla_cc._runtime.private import XLAC

pytest.importorskip("jax", reason="pip install jax: it runs replicas on virtual devices")
F16, F32, F64 = 10, 11, 12
GATHERED = {1: bool, 2: np.int8, 5: np.int64, F16: np.float16, 15: np.complex64}
OTHERS = {16: ml_dtypes.bfloat16, F16: np.float16, F64: np.float64}  # XLA's numbers of types


def axes(dims, kept):
    """Groups of the ranks that differ along those axes only."""
    groups = {}
    for rank in range(math.prod(dims)):
        place, left = [], rank
        for size in dims:
            place.append(left % size)
            left //= size
        groups.setdefault(tuple(place[i] for i in range(len(dims)) if i not in kept), []).append(
            rank
        )
    return list(groups.values())


def shuffled(groups, seed):
    draw = random.Random(seed)
    return [draw.sample(group, len(group)) for group in groups]


def by_pairs(ranks, seed):
    """One group, in which neighbours stay together."""
    pairs = shuffled([range(ranks // 2)], seed)[0]
    return [[rank for pair in pairs for rank in (2 * pair + 1, 2 * pair)]]


# The target, the op, the shape of an operand, its dimension, groups and the way that is taken.
MESH, TORUS = (4, 4), (4, 4, 4)
STAGES, BLOCKS, FILLED = "in two stages", "in blocks", "filled up"
BOTH = f"{STAGES} {BLOCKS}"
CASES = [
    ("tpu:v5e:4x4", "reduce_scatter", [16 * 16384, 4], 0, None, BOTH),
    ("tpu:v5e:4x4", "reduce_scatter", [1 << 20], 0, None, BOTH),
    ("tpu:v5e:4x4", "reduce_scatter", [3, 16 * 5, 4099], 1, None, BOTH),
    ("tpu:v5e:4x4", "reduce_scatter", [9, 16 * 8, 512], 1, None, STAGES),
    ("tpu:v5e:4x4", "reduce_scatter", [16 * 16384 + 16 * 7], 0, by_pairs(16, 1), BOTH),
    ("tpu:v5e:4x4", "reduce_scatter", [4 * 65537], 0, axes(MESH, (1,)), BLOCKS),
    ("tpu:v5e:4x4", "reduce_scatter", [65, 4 * 1003], 1, shuffled(axes(MESH, (0,)), 2), FILLED),
    ("tpu:v5e:4x4", "reduce_scatter", [4 * 250, 1000], 0, shuffled(axes(MESH, (1,)), 5), BLOCKS),
    ("tpu:v5e:4x4", "reduce_scatter", [16 * 7000, 6], 0, by_pairs(16, 6), BOTH),
    ("tpu:v5e:4x4", "reduce_scatter", [16 * 16384], 0, shuffled([range(16)], 6), BOTH),
    ("tpu:v5e:4x4", "reduce_scatter", [4 * 65536, 2], 0, axes(MESH, (0,)), BLOCKS),
    ("tpu:v5e:4x4", "reduce_scatter", [9, 4 * 251, 256], 1, axes(MESH, (0,)), FILLED),
    ("tpu:v5e:4x4", "reduce_scatter", [1300, 16 * 101], 1, None, BOTH),
    ("tpu:v5e:4x4", "reduce_scatter", [4 * 7, 9999], 0, axes(MESH, (0,)), BLOCKS),
    ("tpu:v5e:4x4", "reduce_scatter", [5, 4 * 260, 104], 1, axes(MESH, (1,)), BLOCKS),
    ("tpu:v5e:4x4", "reduce_scatter", [16 * 512, 256, 1, 1], 0, None, BOTH),
    ("tpu:v5e:4x4", "reduce_scatter", [1, 16 * 65537, 1], 1, by_pairs(16, 9), BOTH),
    ("tpu:v5e:4x4", "all_gather", [65537], 0, None, BLOCKS),
    ("tpu:v5e:4x4", "all_gather", [1, 65537, 1], 1, shuffled([range(16)], 3), BLOCKS),
    ("tpu:v5e:2x4", "reduce_scatter", [8 * 262145], 0, None, BLOCKS),
    ("tpu:v5e:2x4", "reduce_scatter", [33, 8 * 4990], 1, None, FILLED),
    ("tpu:v5e:2x4", "reduce_scatter", [8 * 12, 10, 200], 0, None, ""),  # is kept
    ("tpu:v5e:2x4", "reduce_scatter", [2 * 77, 4099], 0, [[0, 4], [1, 5], [2, 6], [3, 7]], BLOCKS),
    ("tpu:v5e:2x4", "all_gather", [777], 0, None, BLOCKS),
    ("tpu:v5e:2x4", "all_gather", [5, 777], 1, None, ""),
    ("tpu:v5e:2x2", "reduce_scatter", [4 * 65537], 0, None, BLOCKS),
    ("tpu:v5e:2x2", "all_gather", [5001], 0, shuffled([range(4)], 1), BLOCKS),
    ("tpu:v4:2x2x2", "reduce_scatter", [8 * 131072, 8], 0, by_pairs(8, 2), BOTH),
    ("tpu:v4:2x2x2", "reduce_scatter", [8 * 2048, 512], 0, None, BOTH),
    ("tpu:v4:2x2x2", "all_gather", [4097], 0, None, BLOCKS),
    ("tpu:v5p:4x4x4", "reduce_scatter", [64 * 16385], 0, None, BOTH),
    ("tpu:v5p:4x4x4", "reduce_scatter", [64 * 8, 512], 0, by_pairs(64, 3), BOTH),
    ("tpu:v5p:4x4x4", "reduce_scatter", [16 * 16, 1024], 0, axes(TORUS, (0, 2)), BLOCKS),
    ("tpu:v5p:4x4x4", "all_gather", [8192], 0, None, STAGES),
    ("tpu:v5p:4x4x4", "all_gather", [8195], 0, None, BOTH),
    ("tpu:v5p:4x4x4", "all_gather", [5, 1001], 1, None, STAGES),
    ("tpu:v5p:4x4x4", "all_gather", [16, 256], 0, by_pairs(64, 4), STAGES),
    ("tpu:v5e:8x8", "all_gather", [8, 512], 1, None, STAGES),
    ("tpu:v5e:8x8", "all_gather", [3, 2, 700], 2, by_pairs(64, 8), STAGES),
    ("tpu:v5e:8x8", "all_gather", [2000, 3], 0, by_pairs(64, 7), STAGES),
]


def lowered(target, op, shape, dim, groups, dtype=F32, kind="sum"):
    with lowering_for(target):
        if op == "all_gather":
            return _C.lower_all_gather([(dtype, shape)], dim, groups)
        return _C.lower_reduce_scatter([(dtype, shape)], kind, 1.0, 1.0, dim, None, groups)


def wanted(op, inputs, dim, groups):
    results = [None] * len(inputs)
    for group in groups:
        own = [inputs[rank] for rank in group]
        if op == "all_gather":
            parts = [np.concatenate(own, dim)] * len(group)
        else:
            parts = np.split(sum(own), len(group), dim)
        for rank, part in zip(group, parts, strict=True):
            results[rank] = part
    return results


@pytest.mark.parametrize("target", sorted({case[0] for case in CASES}))
def test_values(target):
    world = math.prod(int(size) for size in target.rpartition(":")[2].split("x"))
    rng = np.random.default_rng(7)
    jobs, results = [], []
    for _, op, shape, dim, groups, way in (case for case in CASES if case[0] == target):
        groups = groups and [list(group) for group in groups]
        made = lowered(target, op, shape, dim, groups)
        ways = [one for one in made["ways"] if one.startswith(op) and "rank order" not in one]
        assert ways == ([f"{op} {way}"] if way else []), (op, shape, made["ways"])
        # Sums of small integers are exact in any order.
        inputs = [rng.integers(-99, 99, shape).astype(np.float32) for _ in range(world)]
        jobs.append((made["bytes"], inputs))
        results.append(wanted(op, inputs, dim, groups or [list(range(world))]))
    for number, (got, want) in enumerate(zip(replicas.run(jobs, world), results, strict=True)):
        for rank in range(world):
            assert np.array_equal(got[rank], want[rank]), (number, rank)


def test_values_of_other_types_and_kinds():
    target, world = "tpu:v5e:4x4", 16
    reduced = {"sum": sum, "max": np.maximum.reduce, "min": np.minimum.reduce, "average": np.mean}
    rng = np.random.default_rng(8)
    jobs, results = [], []
    for number, kind, shape, dim in (
        *((F32, kind, [16 * 65537], 0) for kind in ("max", "min", "average")),
        *((number, "sum", [16 * 8, 513], 0) for number in OTHERS),
        *((number, "max", [3, 16 * 16, 256], 1) for number in OTHERS),
    ):
        made = lowered(target, "reduce_scatter", shape, dim, None, number, kind)
        staged = any("in two stages" in way for way in made["ways"])
        assert staged == (number not in (F16, F64)), made["ways"]  # which are never kept
        own = OTHERS.get(number, np.float32)
        inputs = [rng.integers(-7, 8, shape).astype(own) for _ in range(world)]
        jobs.append((made["bytes"], inputs))
        stacked = [x.astype(np.float64) for x in inputs]
        whole = stacked if kind == "sum" else np.stack(stacked)
        whole = reduced[kind](whole, axis=0) if kind == "average" else reduced[kind](whole)
        results.append([part.astype(own) for part in np.split(whole, world, dim)])
    for got, want in zip(replicas.run(jobs, world), results, strict=True):
        for rank in range(world):
            assert np.array_equal(got[rank], want[rank]), rank


def test_gathers_of_every_width():
    """Of a vector in blocks, and of a list of which one goes in blocks: bits are not looked at."""
    world = 4
    rng = np.random.default_rng(9)
    jobs, results = [], []
    for number, own in GATHERED.items():
        made = lowered("tpu:v5e:2x2", "all_gather", [4099], 0, None, number)
        assert made["ways"] == ["all_gather in blocks"]
        inputs = [rng.integers(0, 2, 4099).astype(own) for _ in range(world)]
        jobs.append((made["bytes"], inputs))
        results.append(np.concatenate(inputs))
    for got, want in zip(replicas.run(jobs, world), results, strict=True):
        assert all(np.array_equal(one, want) for one in got)


@pytest.mark.parametrize("groups", [None, by_pairs(16, 4)])
def test_gradients(groups):
    """Each is of the other op: in stages, in blocks, in another order of ranks."""
    world, rng = 16, np.random.default_rng(10)
    jobs, results = [], []
    for op, shape, dim in (
        ("all_gather", (65537,), 0),
        ("all_gather", (5, 1001), 1),
        ("reduce_scatter", (9, 16 * 8, 512), 1),
        ("reduce_scatter", (16 * 1003,), 0),
    ):
        with lowering_for("tpu:v5e:4x4"):
            x = torch.zeros(shape).to(torch_xla.device()).requires_grad_()
            if op == "all_gather":
                y = functions.all_gather(x, dim, groups)
            else:
                y = functions.reduce_scatter("sum", x, scatter_dim=dim, groups=groups)
            (grad,) = torch.autograd.grad((y * y.detach()).sum(), [x])
            module = XLAC._get_xla_tensors_hlo_proto([grad])
        inputs = [rng.integers(-9, 10, shape).astype(np.float32) for _ in range(world)]
        jobs.append((module, inputs))
        # All ranks have a part in the loss of what is gathered, and each gets the sums of all.
        whole = [world * one for one in inputs] if op == "all_gather" else [sum(inputs)] * world
        results.append(whole)
    for got, want in zip(replicas.run(jobs, world), results, strict=True):
        for rank in range(world):
            assert np.array_equal(got[rank], want[rank]), rank
