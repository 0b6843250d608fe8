"""Advice: each kind with its lines and bytes, what is close to it, and programs that are well."""

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch_xla

import torch_xla_cc
from torch_xla_cc import xla_model as xm

TPU, GPU, A100 = "tpu:v5e:2x4", "gpu:h100x8", "gpu:a100x8"
WORLDS = {TPU: 8, GPU: 8, A100: 8, "cpu": 4}
BYTES = 256 * 128 * 4  # of a wide operand
HALVES = {TPU: [[0, 1, 2, 3], [4, 5, 6, 7]], "cpu": [[0, 1], [2, 3]]}
GPU_IS_THERE = importlib.util.find_spec("jax_plugins") is not None


def tensor(*shape, dtype=torch.float32):
    return torch.ones(*shape).to(dtype).to("xla")


@pytest.fixture(scope="module")
def given():
    made = SimpleNamespace(
        wide=tensor(256, 128),
        flat=tensor(512, 4, 64),
        small=tensor(64, 128),
        bf16=tensor(64, 128, dtype=torch.bfloat16),
        row=tensor(1, 1 << 15),
        s64=tensor(256, 128, dtype=torch.int64),
        s32=tensor(256, 128, dtype=torch.int32),
        f8=tensor(256, 512, dtype=torch.float8_e5m2),
    )
    torch_xla.sync()
    return made


def inspected(step, given, target):
    if target in (GPU, A100) and not GPU_IS_THERE:
        pytest.skip("needs jax_cuda12_pjrt")
    made = torch_xla_cc.inspect(step, *given, target=target, world_size=WORLDS[target])
    assert not made.failure
    return made


def both(whole):
    return whole[:, :8] + whole[:, 24:32]


# name, target, kind, saved bytes, saved starts, the step: its collectives are on one line.
FOUND = [
    # An all-reduce brings 2 (n - 1) B / n to a rank, a reduce-scatter half of that.
    ("rank 0", TPU, "reduce-scatter", 7 * BYTES // 8, 0,
     lambda g: xm.all_reduce("sum", g.wide)[:32] + 1),
    ("rank 1", "cpu", "reduce-scatter", 3 * BYTES // 4, 0,
     lambda g: xm.all_reduce("max", g.wide)[64:128] * 2),
    ("columns", "cpu", "reduce-scatter", 3 * BYTES // 4, 0,
     lambda g: xm.all_reduce("sum", g.wide)[:, 96:]),
    ("halves", TPU, "reduce-scatter", 3 * BYTES // 4, 0,
     lambda g: xm.all_reduce("sum", g.wide, groups=HALVES[TPU])[64:128]),
    ("three dimensions", TPU, "reduce-scatter", 7 * (512 << 10) // 8, 0,
     lambda g: xm.all_reduce("sum", g.flat)[:64] + 1),
    ("a vector", TPU, "reduce-scatter", 7 * (512 << 10) // 8, 0,
     lambda g: xm.all_reduce("sum", g.flat.view(-1))[: 16 << 10] + 1),
    # An all-gather brings (n - 1) B, of a quarter of the columns a quarter.
    ("columns", TPU, "gather-less", 7 * BYTES * 3 // 4, 0,
     lambda g: xm.all_gather(g.wide)[:, :32] + 1),
    ("columns", "cpu", "gather-less", 3 * BYTES * 3 // 4, 0,
     lambda g: xm.all_gather(g.wide)[:, 32:64]),
    ("two slices", TPU, "gather-less", 7 * BYTES * 3 // 4, 0,
     lambda g: both(xm.all_gather(g.wide))),
    # A broadcast of 512 bytes is an all-reduce on these.
    ("a row", TPU, "gather-less", 7 * BYTES - 2 * 7 * 512 // 8, 0,
     lambda g: xm.all_gather(g.wide)[3] + 1),
    ("a row", "cpu", "gather-less", 3 * BYTES - 2 * 3 * 512 // 4, 0,
     lambda g: xm.all_gather(g.wide)[700]),
    ("all-gather", "cpu", "repeated", 3 * BYTES, 1,
     lambda g: (xm.all_gather(g.wide), xm.all_gather(g.wide) + 1)),
    # What a list is one instruction for, and the compiler does not combine by itself.
    ("all-gather", "cpu", "combine", 0, 1,
     lambda g: [xm.all_gather(g.small + i) for i in range(2)]),
    ("reduce-scatter", "cpu", "combine", 0, 2,
     lambda g: [xm.reduce_scatter("sum", g.small + i, 1.0, 0, 4) for i in range(3)]),
    # Each of 128 KiB is read and written once.
    ("columns", "cpu", "transpose", 2 * BYTES, 0,
     lambda g: xm.all_gather(g.wide, dim=1) + 1),
    ("columns", GPU, "transpose", 2 * BYTES, 0,
     lambda g: xm.all_gather(g.wide, dim=1) + 1),
    # By a reduce-scatter and an all-gather of 8 bytes each, or by an all-reduce of 4.
    ("s64", TPU, "fallback", 2 * 7 * BYTES * 2 // 8 - 2 * 7 * BYTES // 8, 0,
     lambda g: xm.all_reduce("max", g.s64)),
    # In f32, or in bf16.
    ("f8", A100, "fallback", 2 * 7 * (4 - 2) * BYTES // 8, 0,
     lambda g: xm.all_reduce("sum", g.f8)),
    # By an all-reduce of all that is gathered, or by the all-gather.
    ("partial", "cpu", "fallback", BYTES, 0,
     lambda g: xm.all_gather(g.wide, groups=[[0, 1]])),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::torch_xla_cc.FallbackWarning")
@pytest.mark.parametrize(
    ("name", "target", "kind", "saved", "starts", "step"),
    [pytest.param(*case, id=" ".join((case[2], case[0], case[1]))) for case in FOUND],
)
def test_it_is_found(given, name, target, kind, saved, starts, step):
    (found,) = inspected(step, (given,), target).advice
    assert (found.kind, found.saved_bytes, found.saved_starts) == (kind, saved, starts)
    assert found.saved_on == ("memory" if kind == "transpose" else "wire")
    of_each = starts + 1 if kind in ("repeated", "combine") else 1
    assert found.lines == ((__file__, step.__code__.co_firstlineno),) * of_each


def partly(whole):
    return whole[:32] * 2, whole.sum()


def broadcast(x):
    xm.collective_broadcast([x], 0)
    return x


# All of these are well, or no better on that target, or save less than it is worth.
WELL = [
    ("all is used as well", TPU, lambda g: partly(xm.all_reduce("sum", g.wide))),
    ("the result as well", TPU,
     lambda g: (lambda y: (y, y[:32] * 2))(xm.all_reduce("sum", g.wide))),
    ("no block", TPU, lambda g: xm.all_reduce("sum", g.wide)[16:48] + 1),
    ("a larger block", TPU, lambda g: xm.all_reduce("sum", g.wide)[:64] + 1),
    ("steps", TPU, lambda g: xm.all_reduce("sum", g.wide)[::8] + 1),
    ("of one rank", TPU,
     lambda g: xm.all_reduce("sum", g.wide, groups=[[i] for i in range(8)])[:32]),
    ("small", TPU, lambda g: xm.all_reduce("sum", g.small)[:8] + 1),
    # What this compiler does by itself.
    ("repeated all-gather", TPU, lambda g: (xm.all_gather(g.wide), xm.all_gather(g.wide) + 1)),
    ("repeated all-reduce", TPU, lambda g: [xm.all_reduce("sum", g.wide) * i for i in range(3)]),
    ("repeated small ones", TPU, lambda g: [xm.all_gather(g.small) * i for i in range(2)]),
    ("combined", TPU, lambda g: [xm.all_reduce("sum", g.small + i) for i in range(3)]),
    ("combined", GPU, lambda g: [xm.all_gather(g.small + i) for i in range(3)]),
    ("two of a list as well", TPU, lambda g: [xm.all_gather(g.small + i) for i in range(2)]),
    ("inner dimensions", TPU, lambda g: xm.all_gather(g.flat, dim=1)),
    ("a reduce-scatter", TPU, lambda g: xm.reduce_scatter("sum", g.wide, 1.0, 0, 8) + 1),
    ("all parts", TPU, lambda g: (lambda y: y[:1024] + y[1024:])(xm.all_gather(g.wide))),
    ("all columns", TPU, lambda g: (lambda y: y[:, :32] @ y[:, 96:].t())(xm.all_gather(g.wide))),
    ("every other row", TPU, lambda g: xm.all_gather(g.wide)[::2] + 1),
    ("sum and slice", TPU, lambda g: (lambda y: (y[:, :8] * 2, y.sum()))(xm.all_gather(g.wide))),
    ("a small gather", "cpu", lambda g: xm.all_gather(g.small)[:, :96] + 1),
    ("other values", TPU, lambda g: (xm.all_gather(g.wide), xm.all_gather(g.wide + 1))),
    ("one of the other", TPU, lambda g: xm.all_reduce("sum", xm.all_reduce("sum", g.wide))),
    ("other dimensions", TPU, lambda g: (xm.all_gather(g.wide), xm.all_gather(g.wide, dim=1))),
    ("other reductions", TPU,
     lambda g: (xm.all_reduce("sum", g.wide), xm.all_reduce("max", g.wide))),
    ("other groups", TPU,
     lambda g: (xm.all_gather(g.wide), xm.all_gather(g.wide, groups=HALVES[TPU]))),
    ("what the compiler takes together", TPU,
     lambda g: [xm.collective_permute(g.wide, [[0, 1]]) * i for i in range(2)]),
    ("other pairs", TPU, lambda g: [xm.collective_permute(g.wide, [[0, i]]) for i in (1, 2)]),
    ("one after the other", TPU, lambda g: xm.all_reduce("sum", xm.all_reduce("sum", g.small) * 2)),
    ("a list", TPU, lambda g: xm.all_reduce("sum", [g.small + 1, g.small * 2])),
    ("large", TPU, lambda g: (xm.all_reduce("sum", g.wide + 1), xm.all_reduce("sum", g.wide * 2))),
    ("small, other types", TPU,
     lambda g: (xm.all_reduce("sum", g.small), xm.all_reduce("sum", g.bf16))),
    ("small, other reductions", TPU,
     lambda g: (xm.all_reduce("sum", g.small + 1), xm.all_reduce("max", g.small))),
    ("small, other groups", TPU,
     lambda g: (xm.all_gather(g.small + 1), xm.all_gather(g.small, groups=HALVES[TPU]))),
    ("no lists there", TPU,
     lambda g: [xm.reduce_scatter("sum", g.small + i, 1.0, 0, 8) for i in range(2)]),
    ("no lists there", "cpu", lambda g: [xm.all_reduce("sum", g.small + i) for i in range(2)]),
    ("gathers inner dimensions", TPU, lambda g: xm.all_gather(g.wide, dim=1) + 1),
    ("turned before", "cpu", lambda g: xm.all_gather(g.wide.t(), dim=0) + 1),
    ("turned after", "cpu", lambda g: xm.all_gather(g.wide, dim=0).t() + 1),
    ("outermost but for ones", "cpu", lambda g: xm.all_gather(g.row, dim=1) + 1),
    ("no other way", "cpu", lambda g: xm.all_to_all(g.wide, 0, 0, 4)),
    ("no other way", TPU, lambda g: broadcast(g.wide + 1)),
    ("groups that leave one", "cpu", lambda g: xm.all_gather(g.wide, groups=[[0, 1, 2]])),
    ("groups that are completed", TPU, lambda g: xm.all_gather(g.wide, groups=[[0, 1]])),
    ("native", TPU, lambda g: xm.all_reduce("max", g.s32)),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::torch_xla_cc.FallbackWarning")
@pytest.mark.parametrize(
    ("name", "target", "step"), [pytest.param(*case, id=" ".join(case[:2])) for case in WELL]
)
def test_there_is_none(given, name, target, step):
    made = inspected(step, (given,), target)
    assert made.rows and made.advice == ()


@pytest.fixture(scope="module")
def example():
    """examples/tensor_parallel.py."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    try:
        import tensor_parallel

        yield tensor_parallel
    finally:
        sys.path.pop(0)


@pytest.mark.parametrize("target", [TPU, "cpu"])
def test_the_example_is_well(example, target):
    ranks = WORLDS[target]
    block = example.Block(example.Sizes(), 0, ranks).to("xla")
    optimizer = torch.optim.SGD(block.parameters(), lr=0.05)
    sizes = example.Sizes()
    inputs, wanted = (tensor(sizes.sequence // ranks, sizes.batch, sizes.features) for _ in "ab")
    torch_xla.sync()

    def step():
        optimizer.zero_grad()
        loss = (block(inputs) - wanted).pow(2).sum()
        loss.backward()
        block.sum_replicated_gradients()
        optimizer.step()
        return loss.detach()

    def step_of_the_demo():
        return xm.all_reduce(xm.REDUCE_SUM, step())

    assert inspected(step, (), target).advice == ()
    found = inspected(step_of_the_demo, (), target).advice
    # On the CPU, which the demo runs on, one instruction takes one operand. On a TPU the loss,
    # which the demo sums to print it, could go with the gradients of the norms.
    assert [(one.kind, one.saved_starts) for one in found] == (
        [] if target == "cpu" else [("combine", 1)]
    )
