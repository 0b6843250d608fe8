"""What PyTorch's profiler shows of calls, as a function of the rank."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch_xla
from torch.profiler import ProfilerActivity, profile

import torch_xla_cc.distributed  # noqa: F401 (registers the backend)


def _calls(rank: int) -> None:
    device, size = torch_xla.device(), dist.get_world_size()
    x = torch.ones(2, 3, device=device)
    dist.all_reduce(x)
    work = dist.all_gather([torch.zeros_like(x) for _ in range(size)], x, async_op=True)
    work.wait()
    dist.reduce_scatter(torch.zeros_like(x), [x] * size)
    received = dist.irecv(torch.zeros_like(x), (rank - 1) % size)
    dist.isend(x, (rank + 1) % size).wait()
    received.wait()
    dist.barrier()


def events(rank: int) -> list[tuple[str, list[list[int]], bool]]:
    """(name, shapes of inputs, whether it ended after it began) in the order of their begins.

    Of rank 0: there is one profiler in a process, and on threads that is one for all ranks.
    """
    if not dist.is_initialized():
        dist.init_process_group("xla_cc")
    if rank != 0:
        _calls(rank)
        return []
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        _calls(rank)
    ours = [event for event in profiler.events() if event.name.startswith("xla_cc:")]
    ours.sort(key=lambda event: event.time_range.start)
    return [(e.name, e.input_shapes, e.time_range.end > e.time_range.start) for e in ours]
