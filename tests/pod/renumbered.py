"""A world of torch.distributed whose ranks are numbered otherwise than the devices of the pod."""

import os

import torch
import torch.distributed as dist

import torch_xla_cc.distributed  # noqa: F401

_worlds = 0


def run(device, order):
    """The calls of a world of those devices; `order`: the rank of each, by device."""
    global _worlds
    _worlds += 1
    if device >= len(order):
        return
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.PrefixStore(f"world {_worlds}", dist.TCPStore(address, port, is_master=False))
    rank, size = order[device], len(order)
    dist.init_process_group("cpu:gloo,xla:xla_cc", store=store, rank=rank, world_size=size)
    try:
        _calls(rank, size)
        _of_parts(rank, size)
    finally:
        dist.destroy_process_group()


def _calls(rank, size):
    x = torch.arange(3.0, device="xla") + 10 * rank
    every = [10.0 * r + i for r in range(size) for i in range(3)]

    out = torch.zeros(3 * size, device="xla")
    dist.all_gather_into_tensor(out, x)
    assert out.tolist() == every

    sums = torch.zeros(2, device="xla")
    dist.reduce_scatter_tensor(sums, torch.arange(2.0 * size, device="xla"))
    assert sums.tolist() == [2.0 * rank * size, (2 * rank + 1.0) * size]

    y = torch.full((2,), float(rank), device="xla")
    dist.broadcast(y, 1)
    assert y.tolist() == [1.0, 1.0]

    out = torch.zeros(size, device="xla")
    dist.all_to_all_single(out, torch.arange(float(size), device="xla") + 100 * rank)
    assert out.tolist() == [100.0 * r + rank for r in range(size)]

    uneven = [torch.zeros(rank + 1, device="xla") for _ in range(size)]
    dist.all_to_all(
        uneven, [torch.full((r + 1,), float(10 * rank + r), device="xla") for r in range(size)]
    )
    assert [part.tolist() for part in uneven] == [
        [10.0 * r + rank] * (rank + 1) for r in range(size)
    ]

    before = torch.empty(3, device="xla")
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, x, (rank + 1) % size),
            dist.P2POp(dist.irecv, before, (rank - 1) % size),
        ]
    )
    for work in works:
        work.wait()
    assert before.tolist() == [10.0 * ((rank - 1) % size) + i for i in range(3)]

    parts = [torch.zeros(3, device="xla") for _ in range(size)] if rank == 1 else None
    dist.gather(x, parts, dst=1)
    assert parts is None or [i for part in parts for i in part.tolist()] == every

    given = [torch.full((2,), 5.0 + r, device="xla") for r in range(size)] if rank == 1 else None
    y = torch.zeros(2, device="xla")
    dist.scatter(y, given, src=1)
    assert y.tolist() == [5.0 + rank] * 2


def _of_parts(rank, size):
    """A group of the first and the last, and one that is numbered from its end."""
    ends = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        out = torch.zeros(2, device="xla")
        dist.all_gather_into_tensor(out, torch.tensor([1.0 + rank], device="xla"), group=ends)
        assert out.tolist() == [1.0, float(size)]
    backwards = dist.new_group(list(reversed(range(size))))
    out = torch.zeros(size, device="xla")
    dist.all_gather_into_tensor(out, torch.tensor([1.0 + rank], device="xla"), group=backwards)
    order = [dist.get_global_rank(backwards, r) for r in range(size)]
    assert out.tolist() == [1.0 + r for r in order]


def twice(device):
    """Two ranks say that they use the same device; the error of each."""
    from torch_xla import runtime

    runtime.global_ordinal = lambda: 0
    try:
        run(device, (0, 1))
    except RuntimeError as error:
        return str(error)
    return ""
