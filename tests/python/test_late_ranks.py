"""A rank that is late by more than XLA:CPU waits for one (15 s, then it aborts the process).

Late because it sleeps before its step, or because its program takes long to compile. The programs
of all ranks differ, so that each is compiled for itself.
"""

import time

import beside
import pytest
import torch
import torch_xla
import worlds
from torch_xla.debug import metrics

import torch_xla_cc
from torch_xla_cc import xla_model as xm

XLA_WAITS_S = 15
LATE_S = 19
STEPS_AFTER = 2


def links(x, count):
    """A chain of operations for which XLA:CPU compiles `count` different kernels."""
    for i in range(count):
        x = torch.tan(x[: x.shape[0] - i % 2].sum() + x) + torch.erfinv(torch.sigmoid(x.t())) * 1e-3
    return x


def compile_seconds():
    """How long all compiles of this process have taken."""
    data = metrics.metric_data("CompileTime")
    return data[1] / 1e9 if data else 0.0


def seconds_of(count):
    """How long that many links take to compile on this machine, now."""
    before = compile_seconds()
    links(torch.rand(7, 7).to(torch_xla.device()), count)[0, 0].item()
    return compile_seconds() - before


def call(rank, x):
    total = xm.all_reduce(xm.REDUCE_SUM, x)
    pair = xm.all_reduce(xm.REDUCE_SUM, x, groups=[[0, 3], [1, 2]])
    return total, pair, xm.collective_permute(x, [(0, 1), (1, 2), (2, 3), (3, 0)])


def step(rank, where, count):
    """The collectives, with `count` links beside them, before them or after them; the values."""
    x = torch.full((6, 6), float(rank)).to(torch_xla.device())
    if where == "before":
        x = x + links(x + 1, count).sum() * 0
        x = torch.nan_to_num(x, float(rank))  # the links may overflow
    results = call(rank, x)
    other = links(results[0] if where == "after" else x, count) if where != "before" else x
    torch_xla.sync(wait=where == "beside")
    del other
    return [result[0, 0].item() for result in results]


def wanted(rank):
    return [6.0, 3.0, (rank - 1) % 4]


def asleep(rank):
    before = step(rank, "beside", 1 + rank)
    start = time.monotonic()
    if rank == 2:
        time.sleep(LATE_S)
    late = step(rank, "beside", 6 + rank)
    took = time.monotonic() - start
    return [before, late, *(step(rank, "beside", 1 + rank) for _ in range(STEPS_AFTER))], took


def compiling(rank, where, warm, seconds):
    """Rank 1's program takes long to compile; `warm`: in a loop that has run before."""
    values = [step(rank, where, 1 + rank) for _ in range(3 if warm else 0)]
    count = int(150 * seconds / seconds_of(150)) if rank == 1 else 1 + rank
    before = compile_seconds()
    values.append(step(rank, where, count))
    took = compile_seconds() - before
    values += [step(rank, where, 1 + rank) for _ in range(STEPS_AFTER)]
    return values, took


def slow(where, warm):
    # How long it will take is measured by a short program, beside whatever else the machine does
    # then. Should that have been more than it does later, once more.
    for seconds in (1.1 * LATE_S, 2 * LATE_S):
        # Nothing is compiled yet there; with all optimisations time grows as the program does.
        with worlds.World(4, env=worlds.FULL) as fresh:
            results = fresh.run(compiling, where, warm, seconds, timeout_s=250)
        # The compiles of all ranks in that step; those of the others are short.
        if results[1][1] > XLA_WAITS_S + 3:
            return [values for values, _ in results]
    return None


def sleeps():
    with worlds.World(4) as world:
        return world.run(asleep, timeout_s=180)


# All wait at the same time: what compiles takes as long with half of a processor.
LATE = beside.Runs(
    asleep=sleeps, before=lambda: slow("before", False), beside=lambda: slow("beside", True)
)


def test_a_rank_that_sleeps_before_its_step():
    for rank, (values, took) in enumerate(LATE["asleep"]):
        assert values == [wanted(rank)] * (2 + STEPS_AFTER)
        assert took > LATE_S


@pytest.mark.parametrize(("where", "steps"), [("before", 1), ("beside", 4)])
def test_a_rank_whose_program_takes_long_to_compile(where, steps):
    results = LATE[where]
    assert results is not None, "it compiled too fast to show anything"
    for rank, values in enumerate(results):
        assert values == [wanted(rank)] * (STEPS_AFTER + steps)


def not_compilable(rank, told, alike):
    """Rank 1's program cannot be compiled; its peers' can, and shall not wait for it."""
    x = torch.full((6, 6), float(rank)).to(torch_xla.device())
    total = xm.all_reduce(xm.REDUCE_SUM, x)
    other = x + 1 if alike else links(total, 1 + rank)
    if rank == 1:
        # XLA's verifier refuses it: there are no eight ranks. (What XLA:CPU refuses later on, as an
        # instruction that it has not, now and then corrupts the memory of the process.)
        with torch_xla_cc.lowering_for("tpu:v5e:2x4"):
            other = xm.all_reduce(xm.REDUCE_SUM, other)
    try:
        torch_xla.sync()
    except Exception as error:
        with open(f"{told}{rank}", "w") as file:
            file.write(f"{type(error).__name__}: {error}")
        raise


@pytest.mark.parametrize("alike", [False, True])
def test_a_rank_whose_program_cannot_be_compiled(alike, tmp_path):
    with worlds.World(4) as world:  # dies if this goes wrong
        with pytest.raises(ValueError, match="replica groups should contain 4") as raised:
            world.run(not_compilable, f"{tmp_path}/", alike)
        assert raised.value.__notes__ == ["raised by rank 1 of 4"]
        messages = {int(file.name): file.read_text() for file in tmp_path.iterdir()}
        # One that is slow to wake is interrupted by launch, and writes nothing.
        assert messages.pop(1).startswith("ValueError")
        for message in messages.values():
            assert message.startswith("RanksDisagree: rank 1 could not run its graph")
        for rank, values in enumerate(world.run(step, "beside", 1)):
            assert values == wanted(rank)
