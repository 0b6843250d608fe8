"""torch_xla's own all_reduces in one program with ours: XLA takes all pinned or none."""

import pytest
import torch
import torch_xla
from torch_xla.core import xla_model as stock

from torch_xla_cc import _aot, lowering_for
from torch_xla_cc import xla_model as xm
from torch_xla_cc._hlo.protobuf import HloModuleProto
from torch_xla_cc._runtime.private import XLAC

RANKS = 8
GROUPS = [list(range(RANKS))]


def filled(*shape):
    return torch.rand(*shape).to(torch_xla.device()) * 2


def one(x):
    return stock.all_reduce("sum", x)


def scaled(x):
    return stock.all_reduce("sum", x, scale=0.5, groups=GROUPS)


def in_place(x):
    several = [x, x.sum(1)]
    stock.all_reduce("sum", several)
    return several[0] + several[1].sum()


def gathered(x):
    return stock.all_gather(x, groups=GROUPS)


@pytest.fixture(autouse=True)
def _on_one_device(monkeypatch):
    """Otherwise torch_xla leaves them out in a process with one."""
    monkeypatch.setenv("XLA_ALWAYS_ALLREDUCE", "1")


@pytest.mark.parametrize("target", ["tpu:v5e:2x4", "gpu:h100x8"])
@pytest.mark.parametrize("call", [one, scaled, in_place, gathered])
def test_stock_and_ours_are_one_program(call, target):
    with lowering_for(target):
        ours = xm.all_reduce(xm.REDUCE_SUM, filled(8, 128))
        theirs = call(filled(8, 128))
        module = XLAC._get_xla_tensors_hlo_proto([ours, theirs])
    reductions = [
        instruction
        for computation in HloModuleProto.FromString(module).computations
        for instruction in computation.instructions
        if instruction.opcode == "all-reduce"
    ]
    assert len(reductions) >= 2
    assert not any(instruction.constrain_layout for instruction in reductions)
    compiled = _aot.compile_hlo(module, target, replicas=RANKS)
    assert [one for one in _aot.collectives(compiled) if "all-reduce" in one.opcode]


def test_a_compiled_function_of_torch_xla_calls_ours():
    """What Dynamo traces for it is c10d's operator, without a group."""

    @torch.compile(backend="openxla", fullgraph=True)
    def reduced(x):
        return stock.all_reduce("sum", x) + 1

    x = filled(3, 5)
    torch.testing.assert_close(reduced(x).cpu(), x.cpu() + 1)
