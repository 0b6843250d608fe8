"""What goes wrong between ranks, each as a function of the rank: what it raised, and when.

The lines of the calls are part of what is tested: `CALL` marks those that errors must name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch_xla

import torch_xla_cc
from torch_xla_cc.distributed import flight_recorder


def device() -> torch.device:
    return torch_xla.device()


def outcome(call: Callable[[], Any]) -> tuple[str, str, float]:
    """The type and message of what it raises, and how long it took."""
    began = time.monotonic()
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error), time.monotonic() - began
    return "", "", time.monotonic() - began


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device=device())


# By field: what rank 1 does, and what all others do. On group g.
def _split(g, sent, received):
    out = ones(sum(received), 2)
    dist.all_to_all_single(out, ones(sum(sent), 2), received, sent, group=g)


MISMATCHES: dict[str, Any] = {
    "op": (
        lambda g: dist.all_reduce(ones(4), group=g),
        lambda g: dist.broadcast(ones(4), 0, group=g),
    ),
    "shape": (
        lambda g: dist.all_reduce(ones(4), group=g),
        lambda g: dist.all_reduce(ones(5), group=g),
    ),
    "dtype": (
        lambda g: dist.all_reduce(ones(4), group=g),
        lambda g: dist.all_reduce(ones(4, dtype=torch.int32), group=g),
    ),
    "kind": (
        lambda g: dist.all_reduce(ones(4), group=g),
        lambda g: dist.all_reduce(ones(4), dist.ReduceOp.MAX, group=g),
    ),
    "root": (
        lambda g: dist.broadcast(ones(4), 0, group=g),
        lambda g: dist.broadcast(ones(4), 1, group=g),
    ),
    "splits": (
        lambda g: _split(g, [2] * g.size(), [2] * g.size()),
        lambda g: _split(g, [3] * g.size(), [3] * g.size()),
    ),
    "barrier": (
        lambda g: dist.barrier(group=g),
        lambda g: dist.all_reduce(ones(4), group=g),
    ),
    "list": (
        lambda g: dist.all_gather([ones(3) for _ in range(g.size())], ones(3), group=g),
        lambda g: dist.all_gather([ones(2) for _ in range(g.size())], ones(2), group=g),
    ),
    # As many elements, but a reshape more in the program that the ranks share.
    "input of a list": (
        lambda g: dist.all_gather([ones(4) for _ in range(g.size())], ones(2, 2), group=g),
        lambda g: dist.all_gather([ones(4) for _ in range(g.size())], ones(4), group=g),
    ),
    "stacked": (
        lambda g: dist.all_gather_into_tensor(ones(g.size(), 4), ones(4), group=g),
        lambda g: dist.all_gather_into_tensor(ones(g.size() * 4), ones(4), group=g),
    ),
    "output of a list": (
        lambda g: dist.reduce_scatter(ones(2, 2), [ones(4) for _ in range(g.size())], group=g),
        lambda g: dist.reduce_scatter(ones(4), [ones(4) for _ in range(g.size())], group=g),
    ),
    "stacked parts": (
        lambda g: dist.reduce_scatter_tensor(ones(4), ones(g.size(), 4), group=g),
        lambda g: dist.reduce_scatter_tensor(ones(4), ones(g.size() * 4), group=g),
    ),
    "output of an exchange": (
        lambda g: dist.all_to_all_single(ones(g.size() * 2), ones(g.size(), 2), group=g),
        lambda g: dist.all_to_all_single(ones(g.size(), 2), ones(g.size(), 2), group=g),
    ),
}


def group_of(timeout_s: float) -> dist.ProcessGroup:
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    return dist.new_group(timeout=timedelta(seconds=timeout_s))


def after(group, rank):
    """What the group says next, and whether a new one works."""
    used = outcome(lambda: dist.all_reduce(ones(2), group=group))
    x = ones(2)
    dist.all_reduce(x, group=group_of(30))
    return used, x.tolist()


def mismatch(rank, field):
    group = group_of(20)
    dist.all_reduce(ones(1), group=group)
    usual, other = MISMATCHES[field]
    found = outcome(lambda: (other if rank == 1 else usual)(group))
    return found, after(group, rank)


def missing(rank, timeout_s):
    """Rank 1 comes when the others have given up."""
    group = group_of(timeout_s)
    dist.all_reduce(ones(1), group=group)
    if rank == 1:
        time.sleep(timeout_s + 1.5)
    found = outcome(lambda: dist.all_reduce(ones(4), group=group))
    calls = flight_recorder(1)
    return found, calls, after(group, rank)


def late(rank, late_s):
    group = group_of(late_s + 60)
    dist.all_reduce(ones(1), group=group)  # both have started
    if rank == 1:
        time.sleep(late_s)
    x = ones(4)
    dist.all_reduce(x, group=group)
    return x.tolist()


def wrong_tag(rank, timeout_s):
    group = group_of(timeout_s)
    if rank == 0:
        work = dist.isend(ones(4), 1, tag=8, group=group)
        found = outcome(lambda: work.wait() if rank == 0 else None)
        return found
    return outcome(lambda: dist.recv(ones(4), 0, tag=7, group=group)) if rank == 1 else None


def wrong_shape(rank):
    """What is sent is not what is received; both ends hear of it, in their next call at last."""
    group = group_of(10)

    def ends():
        if rank == 0:
            dist.send(ones(4), 1, group=group)
        else:
            dist.recv(ones(5), 0, group=group)
        dist.all_reduce(ones(2), group=group)

    return outcome(ends)


def one_call_short(rank):
    """Rank 1 ends while the others wait for it, in another group of the same ranks it goes on."""
    group, other = group_of(2), group_of(20)
    found = outcome(lambda: dist.barrier(group=group)) if rank != 1 else None
    x = ones(2)
    dist.barrier(group=other)
    return found, x.tolist()


def waits_too_long(rank):
    """A Work's own time limit."""
    group = group_of(30)
    if rank == 1:
        time.sleep(2)
    work = dist.all_reduce(ones(4), group=group, async_op=True)
    found = outcome(lambda: work.wait(timedelta(milliseconds=200)))
    work.wait()
    return found, work.is_completed(), work.is_success()


def records(rank):
    group = group_of(20)
    dist.all_reduce(ones(4, 2), group=group)
    dist.broadcast(ones(3), 0, group=group)
    return flight_recorder(2), len(flight_recorder(0))


def dropped(rank):
    """A receive that nobody waits for, and what comes after it. gloo gives it the first message."""
    group = group_of(20)
    if rank == 1:
        work = dist.irecv(torch.zeros(3, device=device()), 0, tag=5, group=group)
        assert not work.is_completed()
        del work
    dist.barrier(group=group)
    x = torch.full((3,), rank + 7.0, device=device())
    for tag in (5, 6):
        if rank == 0:
            dist.isend(x, 1, tag=tag, group=group)
    if rank == 1:
        dist.recv(x, 0, tag=6, group=group)
    dist.all_reduce(x, group=group)
    return x.tolist()


def receives_from_one_that_fails(rank):
    """Rank 1 fails in a call of the group before it sends what rank 0 waits for, for a minute."""
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    group = dist.new_group([0, 1], timeout=timedelta(seconds=60))
    if rank == 0:
        return outcome(lambda: dist.recv(ones(3), 1, group=group))
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=1)
    return outcome(lambda: group.allreduce([ones(3)], options).wait())


def versions(rank):
    """A group of ranks that run several versions, and one of the same ranks afterwards."""
    group_of(60)  # begins torch.distributed
    own = torch_xla_cc.__version__
    torch_xla_cc.__version__ = "0.0.9" if rank == 1 else own
    try:
        wrong = outcome(dist.new_group)
    finally:
        torch_xla_cc.__version__ = own
    x = ones(1)
    dist.all_reduce(x, group=dist.new_group())
    return wrong, x.item(), own
