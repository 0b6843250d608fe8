"""Calls of torch.distributed, each as a function of the rank and the device.

A call makes its tensors on the device, and returns what it got, on the CPU. So the same call on
CPU tensors, which gloo serves, says what is right.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch_xla

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int32, torch.int64, torch.uint8, torch.int8]
KINDS = ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]


def values(rank: int, shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """1 to 3, of which all types hold the sums and products of four."""
    count = torch.Size(shape).numel()
    return (torch.arange(count).reshape(shape) * 7 % 3 + 1 + rank % 2).to(dtype).to(device)


def step(device: str) -> None:
    """Where one rank reads what others do not, all must step: a lazy graph runs then."""
    if device != "cpu":
        torch_xla.sync()


def all_reduce(rank, device, kind="SUM", shape=(3, 4), dtype=torch.float32, group=None):
    x = values(rank, shape, dtype, device)
    dist.all_reduce(x, getattr(dist.ReduceOp, kind), group=group)
    return [x.cpu()]


def broadcast(rank, device, shape=(3, 4), dtype=torch.float32):
    root = dist.get_world_size() - 1
    x = values(rank, shape, dtype, device)
    dist.broadcast(x, root)
    return [x.cpu()]


def reduce(rank, device, kind="SUM", shape=(3, 4), dtype=torch.float32):
    x = values(rank, shape, dtype, device)
    dist.reduce(x, 0, getattr(dist.ReduceOp, kind))
    step(device)
    return [x.cpu()] if rank == 0 else []  # gloo changes the others


def all_gather(rank, device, shape=(3, 4), dtype=torch.float32):
    x = values(rank, shape, dtype, device)
    outputs = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(outputs, x)
    return [output.cpu() for output in outputs]


def all_gather_into_views(rank, device, dtype=torch.float32):
    """The list is chunks of one buffer."""
    x = values(rank, (2, 3), dtype, device)
    buffer = torch.zeros(2 * dist.get_world_size(), 3, dtype=dtype, device=device)
    dist.all_gather(list(buffer.chunk(dist.get_world_size())), x)
    return [buffer.cpu()]


def all_gather_into_tensor(rank, device, shape=(3, 4), stacked=False, dtype=torch.float32):
    x = values(rank, shape, dtype, device)
    size = dist.get_world_size()
    output = torch.zeros(size * shape[0], *shape[1:], dtype=dtype, device=device)
    if stacked and device != "cpu":  # gloo has one form only
        output = output.reshape(size, *shape)
    dist.all_gather_into_tensor(output, x)
    return [output.cpu().flatten()]


def gather(rank, device, shape=(3, 4), dtype=torch.float32):
    x = values(rank, shape, dtype, device)
    size = dist.get_world_size()
    outputs = [torch.zeros_like(x) for _ in range(size)] if rank == size - 1 else None
    dist.gather(x, outputs, dst=size - 1)
    step(device)
    return [output.cpu() for output in outputs or []]


def scatter(rank, device, shape=(3, 4), dtype=torch.float32):
    size = dist.get_world_size()
    output = torch.zeros(shape, dtype=dtype, device=device)
    inputs = [values(i, shape, dtype, device) for i in range(size)] if rank == 0 else None
    dist.scatter(output, inputs, src=0)
    return [output.cpu()]


def reduce_scatter(rank, device, kind="SUM", dtype=torch.float32):
    size = dist.get_world_size()
    inputs = [values(rank + i, (3, 4), dtype, device) for i in range(size)]
    output = torch.zeros((3, 4), dtype=dtype, device=device)
    dist.reduce_scatter(output, inputs, getattr(dist.ReduceOp, kind))
    return [output.cpu()]


def reduce_scatter_tensor(rank, device, kind="SUM", stacked=False, dtype=torch.float32):
    size = dist.get_world_size()
    output = torch.zeros((3, 4), dtype=dtype, device=device)
    x = values(rank, (size * 3, 4), dtype, device)
    if stacked and device != "cpu":  # gloo has one form only
        x = x.reshape(size, 3, 4)
    dist.reduce_scatter_tensor(output, x, getattr(dist.ReduceOp, kind))
    return [output.cpu()]


def all_to_all_single(rank, device, dtype=torch.float32):
    size = dist.get_world_size()
    x = values(rank, (2 * size, 3), dtype, device)
    output = torch.zeros_like(x)
    dist.all_to_all_single(output, x)
    return [output.cpu()]


def all_to_all_split(rank, device, dtype=torch.float32):
    """Rank i sends (i + j) % 3 rows to rank j."""
    size = dist.get_world_size()
    sent = [(rank + to) % 3 for to in range(size)]
    received = [(source + rank) % 3 for source in range(size)]
    x = values(rank, (sum(sent), 2, 2), dtype, device)
    output = torch.zeros(sum(received), 2, 2, dtype=dtype, device=device)
    dist.all_to_all_single(output, x, received, sent)
    return [output.cpu()]


def send_and_recv(rank, device, dtype=torch.float32):
    """A ring, with tags; both ends first send."""
    size = dist.get_world_size()
    if size == 1:
        return []
    x = values(rank, (5,), dtype, device)
    first, second = torch.zeros_like(x), torch.zeros_like(x)
    works = [dist.isend(x, (rank + 1) % size, tag=1), dist.isend(x + 1, (rank + 1) % size, tag=2)]
    works.append(dist.irecv(second, (rank - 1) % size, tag=2))
    works.append(dist.irecv(first, (rank - 1) % size, tag=1))
    for work in works:
        work.wait()
    return [first.cpu(), second.cpu()]


def subgroups(rank, device):
    """Overlapping groups, groups in another order, of one rank; only members call."""
    size = dist.get_world_size()
    lists = [list(range(0, size, 2)), list(range(size - 1)) or [0], [size - 1], list(range(size))]
    found = []
    for members in lists:
        group = dist.new_group(members)
        if rank in members:
            x = values(rank, (4,), torch.float32, device)
            dist.all_reduce(x, group=group)
            outputs = [torch.zeros_like(x) for _ in members]
            dist.all_gather(outputs, x + rank, group=group)
            found += [x.cpu(), *(output.cpu() for output in outputs)]
    return found


def objects(rank, device):
    """They travel as tensors of the group's device."""
    size = dist.get_world_size()
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
    lists = [f"from {rank}", rank]
    dist.broadcast_object_list(lists, 0)
    return [gathered, lists]
