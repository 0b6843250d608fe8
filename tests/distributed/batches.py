"""Batches of isend and irecv in the graph, each as a function of the rank."""

from __future__ import annotations

import contextlib

import torch
import torch.distributed as dist
import torch_xla

import torch_xla_cc
from torch_xla_cc.distributed import in_graph


def start():
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    return dist.get_world_size(), torch_xla.device()


def both_ways(rank, size, x, found):
    """A ring in both directions, two shapes and a tag more in one of them."""
    after, before = (rank + 1) % size, (rank - 1) % size
    return [
        dist.P2POp(dist.isend, x, after),
        dist.P2POp(dist.irecv, found[0], before),
        dist.P2POp(dist.irecv, found[1], after),
        dist.P2POp(dist.isend, x * 10, before),
        dist.P2POp(dist.isend, x[:2] + 5, after, tag=7),
        dist.P2POp(dist.irecv, found[2], before, tag=7),
    ]


def a_ring(rank, size, x, found):
    return [
        dist.P2POp(dist.irecv, found[0], (rank - 1) % size),
        dist.P2POp(dist.isend, x, (rank + 1) % size),
    ]


def a_line(rank, size, x, found):
    """The last sends nothing, the first receives nothing; the second of a tag comes second."""
    ops = []
    if rank + 1 < size:
        ops += [dist.P2POp(dist.isend, x, rank + 1), dist.P2POp(dist.isend, x + 1, rank + 1)]
    if rank > 0:
        ops += [dist.P2POp(dist.irecv, found[i], rank - 1) for i in range(2)]
    return ops


def swap_in_place(rank, size, x, found):
    """What is received goes where what is sent came from."""
    return [
        dist.P2POp(dist.irecv, x, size - 1 - rank),
        dist.P2POp(dist.isend, x, size - 1 - rank),
    ]


PLANS = {f.__name__: f for f in (both_ways, a_ring, a_line, swap_in_place)}


def run(rank, name, device=None):
    """What the ranks get, and the opcodes of the collectives that it became."""
    size, xla = start()
    device = device or xla
    x = torch.arange(4.0).to(device) + 100 * rank
    found = [torch.zeros(n, device=device) for n in (4, 4, 2)]
    plan = PLANS[name](rank, size, x, found)
    with contextlib.ExitStack() as stack:
        if device != "cpu":
            torch_xla.sync()
            stack.enter_context(in_graph())
        calls = stack.enter_context(torch_xla_cc.record()) if rank == 0 else []
        for work in dist.batch_isend_irecv(plan):
            work.wait()
        if device != "cpu":
            torch_xla.sync()
        result = [y.cpu() for y in (x, *found)]
        dist.all_reduce(torch.zeros(1))
    return result, [call.op for call in calls]


def traced(rank, name):
    """The HLO that a TPU chip would compile for it."""
    size, device = start()
    x = torch.ones(256, device=device)
    found = [torch.zeros(256, device=device)]
    torch_xla.sync()
    with torch_xla_cc.lowering_for("tpu:v5e:2x4"), in_graph():
        dist.batch_isend_irecv(PLANS[name](rank, size, x, found))
    module = torch_xla._XLAC._get_xla_tensors_hlo_proto(found)
    torch_xla._XLAC._clear_pending_irs(f"xla:{rank}")
    return bytes(module)


def with_gloo(rank, name):
    ours, nodes = run(rank, name)
    wanted, _ = run(rank, name, "cpu")
    return ours, wanted, nodes


def wrong(rank, name):
    """What does not fit, in a group of its own, which cannot be used any more."""
    _, device = start()
    group = dist.new_group([0, 1])
    x = torch.ones(3, device=device)
    y = torch.zeros(3, device=device)
    if name == "tag":
        ops = [dist.P2POp(dist.isend, x, 1 - rank, group, tag=rank)]
        ops.append(dist.P2POp(dist.irecv, y, 1 - rank, group, tag=rank))
    elif name == "shape":
        ops = [dist.P2POp(dist.isend, x[: 1 + rank], 1 - rank, group)]
        ops.append(dist.P2POp(dist.irecv, y, 1 - rank, group))
    else:  # rank 1 forgets to receive
        ops = [dist.P2POp(dist.isend, x, 1 - rank, group)]
        ops += [dist.P2POp(dist.irecv, y, 1 - rank, group)] * (1 - rank)
    try:
        with in_graph():
            dist.batch_isend_irecv(ops)
    except torch_xla_cc.distributed.CollectiveMismatchError as error:
        return str(error)
    return ""


def after_an_error(rank):
    """A batch whose second end is refused, on both ranks; then one that is right."""
    _, device = start()
    x, y = torch.full((3,), float(rank), device=device), torch.zeros(3, device=device)
    send, receive = dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, y, 1 - rank)
    with in_graph():
        try:
            dist.batch_isend_irecv([send, dist.P2POp(dist.irecv, y, 1 - rank, tag=-1)])
        except ValueError as error:
            assert "tag = -1" in str(error)
        else:
            raise AssertionError("a tag of -1 was taken")
        for work in dist.batch_isend_irecv([send, receive]):
            work.wait()
    return y.tolist()


def in_a_subgroup(rank):
    """Others do not take part: pair by pair, also inside of in_graph()."""
    start()
    group = dist.new_group([1, 2])
    if rank not in (1, 2):
        return []
    device = torch_xla.device()
    x, y = torch.full((3,), float(rank), device=device), torch.zeros(3, device=device)
    with in_graph():
        ops = [dist.P2POp(dist.isend, x, 3 - rank, group)]
        ops.append(dist.P2POp(dist.irecv, y, 3 - rank, group))
        for work in dist.batch_isend_irecv(ops):
            work.wait()
    return y.tolist()
