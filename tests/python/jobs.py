"""Jobs of several ranks for test_compare_ranks.py: `python jobs.py TARGET NPROCS NAME...`.

Prints, for each job, the report of torch_xla_cc.compare_ranks as JSON, or the error.
"""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist
import torch_xla

import torch_xla_cc
from torch_xla_cc import functions, regions
from torch_xla_cc import xla_model as xm
from torch_xla_cc.distributed import in_graph

MOMENTUM_STEPS = 3
ran: list[int] = []  # ranks, one for each step that they ran


def ones(*shape):
    return torch.ones(*shape, device=torch_xla.device())


def gather(rank):
    return xm.all_gather(ones(8, 4), dim=0)


def by_halves(rank):
    world = torch_xla.runtime.world_size()
    ranks = list(range(world))
    return xm.all_reduce("sum", ones(16), groups=[ranks[: world // 2], ranks[world // 2 :]])


def constants(rank):
    x = ones(8)
    return xm.all_reduce("sum", x[rank : rank + 1] if rank < 2 else x[:1])


def other_op(rank):
    x = xm.all_reduce("sum", ones(8))
    if rank == 2:
        return xm.all_gather(x)
    return xm.all_reduce("max", x)


def one_less(rank):
    x = xm.all_reduce("sum", ones(8))
    return x if rank == 1 else xm.all_reduce("max", x)


def momentum(rank):
    weight = torch.nn.Parameter(ones(4, 4))
    optimizer = torch.optim.SGD([weight], lr=0.5, momentum=0.9)
    for _ in range(MOMENTUM_STEPS):
        optimizer.zero_grad()
        (weight * 2).sum().backward()
        weight.grad.copy_(xm.all_reduce("sum", weight.grad))
        optimizer.step()
        torch_xla.sync()
        ran.append(rank)
        weight.sum().item()  # of the step before: it may be read


def reads(rank):
    x = xm.all_reduce("sum", ones(4))
    assert x.sum().item() > 0
    return xm.all_gather(x)


def some_read(rank):
    x = xm.all_reduce("sum", ones(4))
    if rank == 0:
        x.sum().item()
    return xm.all_gather(x)


def with_gradients(rank):
    x = ones(8, 4).requires_grad_()
    y = regions.gather_from_region(regions.scatter_to_region(x, 0) * 2, 0)
    y = functions.scatter(functions.collective_broadcast(functions.gather(y, 1), 1), 2)
    y.sum().backward()
    return x.grad


def raises(rank):
    x = xm.all_reduce("sum", ones(4))
    if rank == 1:
        raise KeyError("of rank 1")
    return x


def used_afterwards(rank):
    x = ones(4)
    try:
        x.add_(xm.all_reduce("sum", x))
        torch_xla.sync()
    finally:
        x.add_(1)
        torch_xla.sync()
        assert bool(x.isnan().all())


def of_groups(rank):
    dist.init_process_group("xla_cc")
    world = dist.get_world_size()
    columns = [dist.new_group(list(range(i, world, 2))) for i in range(2)]
    x = ones(8)
    with in_graph():
        dist.all_reduce(x)
        dist.all_reduce(x, group=columns[rank % 2])
    return x


def channels(rank):
    channel = torch_xla_cc.Channel(pairs=[(0, 1)], tag=7)
    x = ones(8)
    xm.send(x, channel)
    return xm.recv(x, channel)


def main(target: str, nprocs: int, names: list[str]) -> None:
    found = {}
    for name in names:
        job, _, step = name.partition("=")
        fn = globals()[job]
        try:
            report = torch_xla_cc.compare_ranks(fn, (), nprocs, target=target, step=int(step or 1))
            found[name] = json.loads(report.to_json())
            assert f"{nprocs} ranks for {target}" in report.to_text()
        except Exception as error:
            found[name] = {"error": type(error).__name__, "message": str(error)}
        found[name]["ran"] = len(ran)
        ran.clear()
        found[name]["at"] = fn.__code__.co_firstlineno

    # What was taken has left nothing behind.
    sums = torch_xla_cc.launch(lambda rank: xm.all_reduce("sum", ones(2)).tolist(), (), nprocs)
    found["launch"] = {"sums": sums}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
