"""A world that is ended and made again: nothing of the old one is in it."""

from datetime import timedelta

import processes
import pytest
import torch
import torch.distributed as dist
import torch_xla
import worlds

from torch_xla_cc.distributed import _groups  # registers the backend

RUN = {"threads": worlds.run, "processes": processes.run}


def made(*size: int, value: float = 1.0) -> torch.Tensor:
    return torch.full(size, value, device=torch_xla.device())


def after_a_mismatch(rank):
    found = []
    for _ in range(2):
        dist.init_process_group("xla_cc", timeout=timedelta(seconds=20))
        try:
            dist.all_reduce(made(2 + rank))
            torch_xla.sync()
        except RuntimeError as error:
            found.append(type(error).__name__)
        dist.destroy_process_group()
    dist.init_process_group("xla_cc")
    x = made(2, value=rank)
    dist.all_reduce(x)
    dist.destroy_process_group()
    return found, x.tolist()


@pytest.mark.parametrize("where", RUN)
def test_after_a_mismatch(where):
    assert RUN[where](3, after_a_mismatch) == [(["CollectiveMismatchError"] * 2, [3.0, 3.0])] * 3


def after_a_send_that_nobody_received(rank):
    dist.init_process_group("xla_cc")
    if rank == 0:
        dist.isend(made(2), 1)
    dist.destroy_process_group()
    dist.init_process_group("xla_cc")
    x = made(3, value=7)
    if rank == 0:
        dist.send(x, 1)
    elif rank == 1:
        x.zero_()
        dist.recv(x, 0)
    dist.all_reduce(x)
    dist.destroy_process_group()
    return x.tolist()


def test_after_a_send_that_nobody_received():
    # Between processes ending the world waits for the receiver, as gloo's does.
    assert worlds.run(3, after_a_send_that_nobody_received) == [[21.0] * 3] * 3


def without_a_limit(rank):
    """Longer than clocks count."""
    dist.init_process_group("xla_cc", timeout=timedelta.max)
    x, y = made(2, value=rank), made(2)
    dist.all_reduce(x)
    work = dist.all_reduce(x, async_op=True)
    work.wait(timedelta.max)
    works = [dist.isend(y, 1 - rank), dist.irecv(y, 1 - rank)]
    for work in works:
        work.wait(timedelta.max)
    _groups.monitored_barrier(timeout=timedelta.max)
    group = dist.new_group(timeout=timedelta.max)
    dist.barrier(group=group)
    dist.destroy_process_group()
    return x.tolist(), y.tolist()


def test_without_a_limit():
    assert worlds.run(2, without_a_limit) == [([2.0, 2.0], [1.0, 1.0])] * 2
