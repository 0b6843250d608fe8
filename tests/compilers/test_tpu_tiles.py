"""Collectives along dimensions where a TPU has no whole tiles: lowering/rules/tpu_tiles.h."""

import pytest
import torch
import torch_xla

import torch_xla_cc
from torch_xla_cc import xla_model as xm

pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")

TARGETS = ["tpu:v4:2x2x2", "tpu:v5e:2x4", "tpu:v5p:2x2x2", "tpu:v6e:2x4"]


def zeros(*shape):
    x = torch.zeros(shape, device=torch_xla.device())
    torch_xla.sync()
    return x


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("shape", "dim"), [((3, 5, 128), 1), ((3, 8, 100), 2), ((2, 3, 4, 5), 2), ((2, 3, 4, 5), 1)]
)
def test_all_gather(target, shape, dim):
    x = zeros(*shape)
    torch_xla_cc.assert_lowers_to(xm.all_gather, {"all-gather": 1}, x, dim=dim, target=target)


def test_a_reduce_scatter_stays_one():
    """Along dimension 1 as it is, the compiler makes an all-reduce of it."""
    x = zeros(16, 40, 1000)
    torch_xla_cc.assert_lowers_to(
        lambda: xm.reduce_scatter("sum", x, 1.0, 1, 8), {"reduce-scatter": 1}, target=TARGETS[1]
    )


def test_whole_tiles_are_not_moved():
    x, y = zeros(3, 8, 128), zeros(16, 64, 1024)
    for target in TARGETS:
        torch_xla_cc.assert_no_copy(xm.all_gather, x, dim=1, target=target)
    report = torch_xla_cc.assert_lowers_to(
        lambda: xm.reduce_scatter("sum", y, 1.0, 1, 8), {"reduce-scatter": 1}, target=TARGETS[1]
    )
    assert [row.operands for row in report.rows] == [("f32[16,64,1024]",)]


@pytest.mark.parametrize("shape", [(512, 4, 512), (1024, 1, 256), (64, 2, 3, 256)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_reduce_scatter_of_a_sequence_stays_one(shape, dtype):
    """As Megatron has them, [sequence, batch, features]: as they are, they become all-reduces."""
    x = zeros(*shape).to(dtype)
    torch_xla.sync()
    report = torch_xla_cc.assert_lowers_to(
        lambda: xm.reduce_scatter("sum", x * 2, scatter_dim=0), "reduce-scatter", target=TARGETS[1]
    )
    (row,) = report.rows
    assert row.before == ("reduce-scatter",)
    assert row.results == (
        f"{row.operands[0][: row.operands[0].index('[')]}"
        f"[{x.numel() // shape[-1] // 8},{shape[-1]}]",
    )


@pytest.mark.parametrize("target", [TARGETS[1], TARGETS[3]])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [8 * 2048 * 3, 1 << 20, 1 << 23])
def test_a_reduce_scatter_of_a_vector_stays_one(target, dtype, size):
    """As FSDP and ZeRO have them: as vectors they become all-reduces. No bytes are moved."""
    x = zeros(size).to(dtype)
    torch_xla.sync()
    report = torch_xla_cc.assert_lowers_to(
        lambda: xm.reduce_scatter("sum", x, scatter_dim=0), "reduce-scatter", target=target
    )
    assert [row.before for row in report.rows] == [("reduce-scatter",)]
    torch_xla_cc.assert_no_copy(lambda: xm.reduce_scatter("sum", x, scatter_dim=0), target=target)


@pytest.mark.parametrize("target", [TARGETS[0], TARGETS[2]])
def test_others_make_an_all_reduce_of_it(target):
    x = zeros(1 << 20)
    report = torch_xla_cc.inspect(lambda: xm.reduce_scatter("sum", x, scatter_dim=0), target=target)
    assert [(row.before, row.after) for row in report.rows] == [(("reduce-scatter",), "all-reduce")]
