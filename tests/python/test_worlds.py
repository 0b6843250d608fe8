"""A launch's world and its groups end with it, and wait for nobody who holds the interpreter."""

import threading
import time

import pytest
import torch
import torch.distributed as dist
import torch_xla
import worlds

import torch_xla_cc
from torch_xla_cc import _C
from torch_xla_cc import xla_model as xm


def a_name_that_comes_again_for_others(rank):
    dist.init_process_group("xla_cc", init_method="xla://")
    dist.new_group([0, 1])
    dist.destroy_process_group()
    dist.init_process_group("xla_cc", init_method="xla://")
    group = dist.new_group([0, 2])
    if rank != 1:
        dist.barrier(group)
    dist.barrier()
    return True


def a_sender_that_leaves_first(rank):
    if rank == 1:
        time.sleep(1)
    dist.init_process_group("xla_cc", init_method="xla://")
    x = torch.full((3,), float(rank), device=torch_xla.device())
    if rank == 0:
        dist.send(x + 1, 1)
    if rank == 1:
        dist.recv(x, 0)
    dist.destroy_process_group()
    return x.tolist()


def plans_that_the_cache_drops(rank):
    """While others ask with the interpreter lock for what waits for the ranks' meeting."""
    done = threading.Event()

    def ask():
        while not done.is_set():
            _C.ranks_pending(rank)

    asks = threading.Thread(target=ask)
    asks.start()
    try:
        for step in range(20):
            x = torch.ones(step + 1, device=torch_xla.device())
            x = xm.all_reduce(xm.REDUCE_SUM, x)
            _C.clear_cache()
            torch_xla.sync()
    finally:
        done.set()
        asks.join()
    return True


@pytest.fixture(scope="module")
def world():
    with worlds.World(3) as three:
        yield three


def test_a_name_that_comes_again_for_others(world):
    assert world.run(a_name_that_comes_again_for_others) == [True] * 3


def test_what_was_sent_is_there_when_the_sender_has_left(world):
    assert world.run(a_sender_that_leaves_first)[1] == [1, 1, 1]


def test_plans_are_dropped_without_a_lock(world):
    assert world.run(plans_that_the_cache_drops) == [True] * 3


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan")])
def test_a_time_limit_that_is_none(timeout_s):
    with pytest.raises(ValueError, match=r"launch: timeout_s = .*, but it must be a number of sec"):
        torch_xla_cc.launch(print, (), 2, timeout_s=timeout_s)


def who_goes_on_with_its_tensors(rank):
    x = torch.ones(2, device=torch_xla.device()) + rank
    weight = torch.nn.Parameter(torch.full((2, 2), 3.0, device=torch_xla.device()))
    with pytest.raises(torch_xla_cc.RanksDisagree):
        gathered = xm.all_gather(x[: 1 + rank])
        depends = torch.cat([gathered, x]).to(torch.int32)
        issued.wait(20)
        torch_xla.sync()
    kept = (
        xm.all_reduce(xm.REDUCE_SUM, x).tolist(),
        weight.sum().item(),
        (x.view(1, 2) * 2).tolist(),
    )
    return kept, gathered.isnan().all().item(), set(depends.tolist())


def test_after_ranks_disagreed_the_rest_of_their_graphs_is_what_it_was(world):
    """The process ended at the first use of x."""
    for rank, (kept, nan, depends) in enumerate(world.run(who_goes_on_with_its_tensors)):
        assert kept == ([6.0, 6.0], 12.0, [[2.0 + 2 * rank] * 2])
        assert nan and depends == {torch.iinfo(torch.int32).min}


def who_is_told_at_its_next_call(rank):
    """Rank 0 has a collective pending when the others disagree."""
    x = torch.ones(2, device=torch_xla.device())
    if rank == 0:
        total = xm.all_reduce(xm.REDUCE_SUM, x)
        begun.set()
        assert told.wait(20)
        with pytest.raises(torch_xla_cc.RanksDisagree):
            xm.all_gather(x)
        torch_xla.sync()
        assert total.isnan().all().item()
    else:
        assert begun.wait(20)
        with pytest.raises(torch_xla_cc.RanksDisagree):
            while not told.is_set():
                xm.all_gather(torch.ones(rank, device=torch_xla.device())).tolist()
                time.sleep(0.1)
        told.set()
    return xm.all_reduce(xm.REDUCE_SUM, x).tolist()


issued = threading.Barrier(3)
told, begun = threading.Event(), threading.Event()


def test_who_is_told_at_its_next_call_runs_none_of_those_before(world):
    """It ran them alone, and XLA:CPU ended the process."""
    assert world.run(who_is_told_at_its_next_call) == [[3.0, 3.0]] * 3
