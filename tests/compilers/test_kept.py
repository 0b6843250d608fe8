"""What TPU compilers keep of all_gather and reduce_scatter: lowering/rules/kept.h."""

import math

import pytest
import torch
import torch_xla

import torch_xla_cc
from torch_xla_cc import _C, _aot, lowering_for
from torch_xla_cc import xla_model as xm

pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")

TARGETS = ["tpu:v4:2x2x2", "tpu:v5e:2x4", "tpu:v5p:2x2x2", "tpu:v6e:2x4"]
PODS = [
    *("tpu:v5e:2x4", "tpu:v5e:8x8", "tpu:v5e:16x16"),
    *("tpu:v5p:4x4x4", "tpu:v6e:8x8", "tpu:v4:4x4x4"),
]
BF16, F32 = 16, 11  # numbers of XLA's types

# Of a rank, in elements; the dimension along which ranks share. From 1 MiB up in all.
SHAPES = [
    *(((1 << 18,), 0), ((262464,), 0), ((262465,), 0), ((1 << 20,), 0), ((65536, 4), 0)),
    *(((2048, 128), 0), ((2051, 512), 0), ((100, 600), 0), ((1, 65536), 0), ((24, 10880), 0)),
    *(((3, 100000), 0), ((256, 1000), 0), ((250, 1000), 0), ((4095, 1024), 0), ((4096, 1023), 0)),
    *(((16, 64, 256), 0), ((1, 512, 512), 0), ((16, 1, 4096), 0), ((2, 63, 1250), 0)),
    *(((128, 4, 512), 0), ((7, 33, 1024), 0), ((32, 8, 33, 40), 0), ((4096, 1024), 0)),
    *(((2048, 128), 1), ((2051, 128), 1), ((512, 100), 1), ((768, 512), 1), ((1000, 384), 1)),
    *(((333, 1001), 1), ((4, 65536), 1), ((8, 33, 1024), 1), ((8, 64, 512), 1), ((8, 64, 128), 2)),
    *(((8, 64, 500), 2), ((4, 128, 768), 1), ((2, 4096, 64), 2), ((4, 16, 64, 64), 1)),
    *(((4, 16, 64, 64), 2), ((4, 16, 64, 64), 3), ((262152,), 0)),
]


def zeros(*shape):
    x = torch.zeros(shape, device=torch_xla.device())
    torch_xla.sync()
    return x


def programs(target, op, dtype):
    """Shapes of operands, what the lowering says of each, and the compiled programs."""
    world = math.prod(int(size) for size in target.rpartition(":")[2].split("x"))
    shapes, lowered = [], []
    for part, dim in SHAPES:
        own = list(part)
        own[dim] *= world if op == "reduce_scatter" else 1
        with lowering_for(target):
            if op == "all_gather":
                made = _C.lower_all_gather([(dtype, own)], dim, None)
            else:
                made = _C.lower_reduce_scatter([(dtype, own)], "sum", 1.0, 1.0, dim, None, None)
        shapes.append((own, dim, math.prod(part) * world))
        lowered.append(made)
    compiled = _aot.compile_many([one["bytes"] for one in lowered], target)
    return world, [
        (*shape, made, program)
        for shape, made, program in zip(shapes, lowered, compiled, strict=True)
    ]


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("target", PODS)
def test_the_world_of_a_pod(target, op):
    """None is an all-reduce of everything, and a ring's bytes go over the wire."""
    dtype = F32 if target in PODS[:2] else BF16
    world, made = programs(target, op, dtype)
    wanted = op.replace("_", "-")
    wrong = []
    for shape, dim, elements, lowered, compiled in made:
        found = {one.opcode for one in _aot.collectives(compiled)}
        ring = elements * (2 if dtype == BF16 else 4) * (world - 1) / world
        more = lowered["wire_bytes"] / ring
        # What is filled up hands its rest to a neighbour.
        if wanted not in found or not found <= {wanted, "collective-permute"} or more > 1.05:
            wrong.append((shape, dim, found, more, lowered["ways"]))
    assert not wrong


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
    for target in ("tpu:v5e:2x4",):
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
