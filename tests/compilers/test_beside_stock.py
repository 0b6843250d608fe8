"""torch_xla's own collectives in one program with ours: XLA takes all pinned or none."""

import itertools

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


def gathered_into(x):
    output = x.repeat(RANKS, 1)
    stock.all_gather(x, groups=GROUPS, output=output, pin_layout=True)
    return output


def scattered(x):
    return stock.reduce_scatter("sum", x, 1.0, 0, RANKS)


def scattered_into(x):
    output = x[: x.shape[0] // RANKS] * 1
    stock.reduce_scatter("sum", x, 1.0, 0, RANKS, output=output)
    return output


def scattered_lists(x):
    first, second = stock.reduce_scatter("sum", [x, x + 1], 1.0, 0, RANKS)
    return first + second


@pytest.fixture(autouse=True)
def _on_one_device(monkeypatch):
    """Otherwise torch_xla leaves them out in a process with one."""
    monkeypatch.setenv("XLA_ALWAYS_ALLREDUCE", "1")


TARGETS = ["tpu:v5e:2x4", "gpu:h100x8"]
CALLS = [one, scaled, in_place, gathered, gathered_into, scattered, scattered_into]


@pytest.mark.parametrize(
    ("call", "target"),
    # libtpu crashes on any reduce-scatter of several operands.
    [*itertools.product(CALLS, TARGETS), (scattered_lists, TARGETS[1])],
)
def test_stock_and_ours_are_one_program(call, target):
    with lowering_for(target):
        ours = xm.all_reduce(xm.REDUCE_SUM, filled(8, 128) + 1)
        theirs = call(filled(8, 128))
        module = XLAC._get_xla_tensors_hlo_proto([ours, theirs])
    found = [
        instruction
        for computation in HloModuleProto.FromString(module).computations
        for instruction in computation.instructions
        if instruction.opcode in ("all-gather", "all-reduce", "reduce-scatter")
    ]
    assert len(found) >= 2 and any(one.opcode == "all-reduce" for one in found)
    assert not any(instruction.constrain_layout for instruction in found)
    compiled = _aot.compile_hlo(module, target, replicas=RANKS)
    assert [one for one in _aot.collectives(compiled) if "all-reduce" in one.opcode]


def test_a_compiled_function_of_torch_xla_calls_ours():
    """What Dynamo traces for it is c10d's operator, without a group."""

    @torch.compile(backend="openxla", fullgraph=True)
    def reduced(x):
        return stock.all_reduce("sum", x) + 1

    stock.all_reduce("sum", filled(2))  # asks for the number of ranks, which Dynamo cannot trace
    x = filled(3, 5)
    torch.testing.assert_close(reduced(x).cpu(), x.cpu() + 1)
