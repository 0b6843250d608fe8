"""What TPU compilers keep of all_gather and reduce_scatter: lowering/rules/kept.h."""

import itertools
import math
import random

import effort
import pytest
import torch
import torch_xla

import torch_xla_cc
from torch_xla_cc import _C, _aot, lowering_for
from torch_xla_cc import xla_model as xm
from torch_xla_cc._aot import parse_target
from torch_xla_cc._hlo import traffic

pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")

TARGETS = ["tpu:v4:2x2x2", "tpu:v5e:2x4", "tpu:v5p:2x2x2", "tpu:v6e:2x4"]
PODS = [
    *("tpu:v5e:2x4", "tpu:v5e:8x8", "tpu:v5e:16x16"),
    *("tpu:v5p:4x4x4", "tpu:v6e:8x8", "tpu:v4:4x4x4"),
]
BF16, F32 = 16, 11  # numbers of XLA's types

# Of a rank, in elements; the dimension along which ranks share. From 1 MiB of bf16 up.
SHAPES = [
    *(((1 << 19,), 0), ((524608,), 0), ((524609,), 0), ((1 << 22,), 0), ((131072, 4), 0)),
    *(((4096, 128), 0), ((2051, 512), 0), ((1000, 600), 0), ((1, 655360), 0), ((48, 10993), 0)),
    *(((7, 100000), 0), ((528, 1000), 0), ((1250, 1000), 0), ((4095, 1024), 0), ((4096, 1023), 0)),
    *(((32, 64, 256), 0), ((2, 512, 512), 0), ((160, 1, 4096), 0), ((7, 63, 1250), 0)),
    *(((256, 4, 512), 0), ((16, 33, 1024), 0), ((64, 8, 33, 40), 0), ((4096, 1024), 0)),
    *(((4096, 128), 1), ((4099, 128), 1), ((5200, 101), 1), ((768, 1024), 1), ((2000, 384), 1)),
    *(((333, 2002), 1), ((8, 65536), 1), ((16, 33, 1024), 1), ((16, 64, 512), 1)),
    *(((16, 256, 128), 2), ((16, 64, 600), 2), ((6, 128, 768), 1), ((2, 4096, 64), 2)),
    *(((8, 16, 64, 64), 1), ((8, 16, 64, 64), 2), ((8, 16, 64, 128), 3), ((524288 + 8,), 0)),
    *(((4096, 512, 1, 1), 0), ((1, 524609, 1), 1), ((2600, 208), 1), ((16, 100, 400), 0)),
]


def zeros(*shape):
    x = torch.zeros(shape, device=torch_xla.device())
    torch_xla.sync()
    return x


def programs(target, op, dtype, shapes, groups=None):
    """Shapes of operands, what the lowering says of each, and the compiled programs."""
    members = len(groups[0]) if groups else parse_target(target).devices
    operands, lowered = [], []
    for part, dim in shapes:
        own = list(part)
        own[dim] *= members if op == "reduce_scatter" else 1
        with lowering_for(target):
            if op == "all_gather":
                made = _C.lower_all_gather([(dtype, own)], dim, groups)
            else:
                made = _C.lower_reduce_scatter([(dtype, own)], "sum", 1.0, 1.0, dim, None, groups)
        operands.append((own, dim, math.prod(part) * members))
        lowered.append(made)
    compiled = _aot.compile_many([one["bytes"] for one in lowered], target)
    for failed in (one for one in compiled if isinstance(one, _aot.CompilerError)):
        raise failed
    return members, [
        (*operand, made, program)
        for operand, made, program in zip(operands, lowered, compiled, strict=True)
    ]


def lost(target, op, dtype, shapes, groups=None):
    """Those that are all-reduces of everything, or take a twentieth more than a ring's bytes."""
    members, made = programs(target, op, dtype, shapes, groups)
    wanted = op.replace("_", "-")
    wrong = []
    world = parse_target(target).devices
    for shape, dim, elements, lowered, compiled in made:
        after = _aot.collectives(compiled)
        found = {one.opcode for one in after}
        ring = elements * (2 if dtype == BF16 else 4) * (members - 1) / members
        more = float(sum(traffic.received(one, world) for one in after)) / ring
        # What is filled up hands its rest to a neighbour.
        if wanted not in found or not found <= {wanted, "collective-permute"} or more > 1.05:
            wrong.append((shape, dim, found, round(more, 3), lowered["ways"]))
    return wrong


def some(things, number, name):
    """So many of them, or all for a hunt."""
    draw = random.Random(f"{name} {effort.SEED}")
    return draw.sample(things, min(number * effort.TIMES, len(things)))


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("target", PODS)
def test_the_world_of_a_pod(target, op):
    dtype = F32 if target in PODS[:2] else BF16
    assert len(SHAPES) >= 40
    shapes = some(SHAPES, 12 if target == PODS[0] else 3, f"{target} {op}")
    assert lost(target, op, dtype, shapes) == []


def mesh_groups(dims):
    """Groups of a pod: along axes, boxes, halves of an axis, every other one of it."""
    ranks = range(math.prod(dims))

    def place(rank):
        own = []
        for size in dims:
            own.append(rank % size)
            rank //= size
        return own

    def alike(key):
        found = {}
        for rank in ranks:
            found.setdefault(key(place(rank)), []).append(rank)
        return list(found.values())

    axes = range(len(dims))
    made = [
        alike(lambda at, kept=kept: tuple(at[i] for i in axes if i not in kept))
        for count in range(1, len(dims))
        for kept in itertools.combinations(axes, count)
    ]
    for box in itertools.product((1, 2), *[(1, 2, 4)] * (len(dims) - 1)):
        if math.prod(box) > 1:
            made.append(
                alike(lambda at, box=box: tuple(a // b for a, b in zip(at, box, strict=True)))
            )
    made.append(alike(lambda at: (at[0] % 2, *at[1:])))
    made.append(alike(lambda at: (at[-1] % 2, *at[:-1])))
    return made


@pytest.mark.parametrize("target", PODS)
def test_groups_of_a_pod(target):
    """Of one axis, of two, beside each other, and boxes: native in what the compiler makes."""
    dims = [int(size) for size in target.rpartition(":")[2].split("x")]
    several = [groups for groups in mesh_groups(dims) if len(groups[0]) > 1]
    for groups in some(several, 3, target):
        for op in ("all_gather", "reduce_scatter"):
            assert lost(target, op, BF16, [((4096, 512), 0)], groups) == [], groups


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("shape", "dim"), [((3, 5, 128), 1), ((3, 8, 100), 2), ((2, 3, 4, 5), 2), ((2, 3, 4, 5), 1)]
)
def test_all_gather(target, shape, dim):
    x = zeros(*shape)
    torch_xla_cc.assert_lowers_to(xm.all_gather, {"all-gather": 1}, x, dim=dim, target=target)


def test_whole_tiles_are_not_moved():
    x, y = zeros(3, 8, 128), zeros(16, 64, 1024)
    for target in TARGETS:
        torch_xla_cc.assert_no_copy(xm.all_gather, x, dim=1, target=target)
    report = torch_xla_cc.assert_lowers_to(
        lambda: xm.reduce_scatter("sum", y, 1.0, 1, 8), {"reduce-scatter": 1}, target=TARGETS[1]
    )
    assert [row.operands for row in report.rows] == [("f32[16,64,1024]",)]


@pytest.mark.parametrize("target", [TARGETS[1], TARGETS[3]])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_blocks_of_a_vector_are_the_same_bytes(target, dtype):
    """As FSDP and ZeRO have them: as vectors they become all-reduces."""
    x = zeros(1 << 20).to(dtype)
    torch_xla.sync()
    scatter = lambda: xm.reduce_scatter("sum", x, scatter_dim=0)  # noqa: E731
    report = torch_xla_cc.assert_lowers_to(scatter, "reduce-scatter", target=target)
    assert [row.before for row in report.rows] == [("reduce-scatter",)]
    torch_xla_cc.assert_no_copy(scatter, target=target)


def test_gradients_are_combined():
    """With pinned layouts they were eight."""
    grads = [zeros(128, 128) for _ in range(8)]
    for target in ("tpu:v5e:2x4", "gpu:h100x8"):
        torch_xla_cc.assert_lowers_to(
            lambda: [xm.all_reduce("sum", grad * 2) for grad in grads],
            {"all-reduce": 1},
            target=target,
        )


def test_integers_are_not_kept_in_any_shape():
    x = torch.zeros(1 << 20, dtype=torch.int32, device=torch_xla.device())
    torch_xla.sync()
    report = torch_xla_cc.inspect(
        lambda: xm.reduce_scatter("sum", x, scatter_dim=0), target=TARGETS[1]
    )
    assert [(row.before, row.after) for row in report.rows] == [(("reduce-scatter",), "all-reduce")]
