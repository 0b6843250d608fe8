"""What stays in the graph, and what is refused; each as a function of the rank."""

from __future__ import annotations

import contextlib
import os

import calls
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch_xla
from torch_xla.debug import metrics

import torch_xla_cc.distributed
from torch_xla_cc import _C


def start():
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    return dist.get_world_size()


def pending(rank):
    """Whether calls are in the graph: after one, after one inside of in_graph(), after the next."""
    start()
    found = []
    x = torch.ones(4, device=torch_xla.device())
    dist.all_reduce(x)
    found.append(_C.ranks_pending(rank))
    with torch_xla_cc.distributed.in_graph():
        dist.all_reduce(x)
        found.append(_C.ranks_pending(rank))
    dist.all_reduce(x)
    found.append(_C.ranks_pending(rank))
    functional.all_reduce(x, "sum", dist.group.WORLD)
    found.append(_C.ranks_pending(rank))
    torch_xla.sync()
    return found, x.tolist()


def stays_by_setting(rank):
    """Whether a call of a group that was made with the setting is in the graph, on a TPU."""
    dist.barrier()  # the ranks are threads of one process: the world's own group is without it
    os.environ["TORCH_XLA_CC_CALLS"] = "graph"
    group = dist.new_group([0, 1])
    dist.barrier()
    os.environ.pop("TORCH_XLA_CC_CALLS", None)
    found = []
    x = torch.ones(3, device=torch_xla.device())
    for of in (group, None):
        dist.all_reduce(x, group=of)
        found.append(_C.ranks_pending(rank))
    return found, x.tolist()


def many_in_steps(rank):
    """Whether one of many calls has run before its step: a pod alone counts what is pending."""
    start()
    ran = []
    x = torch.ones(1, device=torch_xla.device())
    with torch_xla_cc.distributed.in_graph():
        for _ in range(6):
            for _ in range(200):
                dist.all_reduce(x, op=dist.ReduceOp.MAX)
                ran.append(not _C.ranks_pending(rank))
            torch_xla.sync()
    return any(ran), x.item()


def functionals(rank, device, members):
    """Functional collectives of a group, on that device."""
    size = len(members)
    group = dist.new_group(members)
    if rank not in members:
        return []
    x = (torch.arange(4.0 * size) + 10 * rank).reshape(2 * size, 2).to(device)
    part = x[:2]
    found = [
        functional.all_reduce(x, "sum", group),
        functional.all_reduce(x, "max", group),
        functional.all_gather_tensor(part, 0, group),
        functional.reduce_scatter_tensor(x, "sum", 0, group),
        functional.all_to_all_single(x, None, None, group),
        functional.broadcast(x, size - 1, group),
        *functional.all_reduce_coalesced([x, part], "sum", group),
        *functional.all_gather_into_tensor_coalesced([x, part], group),
        *functional.reduce_scatter_tensor_coalesced([x, x + 1], "sum", [0, 0], group),
    ]
    return [functional.wait_tensor(y).cpu() for y in found]


def both(rank, members):
    start()
    found = functionals(rank, torch_xla.device(), members), functionals(rank, "cpu", members)
    dist.all_reduce(torch.zeros(1))
    return found


def split_in_graph(rank):
    """Split sizes, with the backend of TPU processes: in the graph only where that is asked for."""
    found = []
    for begin in (contextlib.nullcontext, torch_xla_cc.distributed.in_graph):
        with begin():
            found.append(calls.all_to_all_split(rank, torch_xla.device())[0])
        entry = torch_xla_cc.distributed.flight_recorder(1)[0]
        found.append(entry["through"])
    dist.all_reduce(torch.zeros(1))
    return [*found, calls.all_to_all_split(rank, "cpu")[0]]


def forbidden(rank):
    """Calls through the host where the policy forbids them; by op, and what the group does then."""
    start()
    device = torch_xla.device()
    x = torch.ones(2, device=device)
    found = {}
    with torch_xla_cc.fallback("error"):
        for name, call in {
            "send": lambda: dist.isend(x, 1 - rank),
            "recv": lambda: dist.irecv(x, 1 - rank),
            "all_reduce": lambda: dist.all_reduce(x),
        }.items():
            try:
                call()
                found[name] = ""
            except torch_xla_cc.FallbackForbidden as error:
                found[name] = str(error)
    before = metrics.counter_value("xla_cc.fallback.send") or 0
    dist.isend(x, 1 - rank)
    dist.recv(torch.zeros_like(x), 1 - rank)
    counted = metrics.counter_value("xla_cc.fallback.send") - before
    dist.all_reduce(x)
    return found, counted >= 1, x.tolist()


def refused(rank):
    """By label: the message."""
    size = start()
    device = torch_xla.device()

    def ones(*shape, dtype=torch.float32):
        return torch.ones(shape, dtype=dtype, device=device)

    backend = dist.group.WORLD._get_backend(torch.device("xla"))
    calls = {
        "D1": lambda: backend.allreduce([torch.ones(2)]),
        "D2": lambda: backend._allgather_base(ones(2 * size, dtype=torch.int32), ones(2)),
        "D3": lambda: backend.allgather([[ones(2)] * (size + 1)], [ones(2)]),
        "D4": lambda: backend._reduce_scatter_base(ones(3), ones(2 * size)),
        "D5": lambda: backend.send([ones(2)], size, 0),
        "D5 tag": lambda: backend.send([ones(2)], 0, 1 << 30),
        "D6": lambda: dist.all_to_all_single(ones(4), ones(4), [1] * size, [9] * size),
        "R1": lambda: dist.all_reduce(ones(2), dist.ReduceOp.BAND),
        "R3": lambda: backend.allreduce([ones(2, dtype=torch.bool)], average()),
    }
    found = {}
    for label, call in calls.items():
        try:
            call()
        except ValueError as error:
            found[label] = str(error)
    x = ones(2)
    dist.all_reduce(x)  # the group is as before
    return found, x.tolist()


def average():
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.AVG
    return options
