"""Clients on several ranks of one GPU: the demo's transformer block, and torch.distributed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(os.environ["TXCC_TESTS"], "examples")))

import demo
import torch
import torch.distributed as dist
import torch_xla
from tensor_parallel import Sizes

import torch_xla_cc
from torch_xla_cc._runtime import replicas


def block(rank: int, world: int) -> None:
    """The demo's losses, beside those of the same block on one rank."""
    parallel, _ = demo.train(rank, world, 6, Sizes(), lambda _: None)
    alone, _ = demo.train(0, 1, 6, Sizes(), lambda _: None)
    off = max(abs(a - b) for a, b in zip(parallel, alone, strict=True))
    print(f"rank {rank}: demo: losses {parallel[0]:.6f} to {parallel[-1]:.6f}, off by {off:.2e}")


def distributed(rank: int, world: int) -> None:
    """Some calls of torch.distributed, eagerly."""
    dist.init_process_group("xla_cc")
    device = torch_xla.device()
    x = torch.arange(4.0, device=device) + rank
    total = x.clone()
    dist.all_reduce(total)
    whole = torch.empty(4 * world, device=device)
    dist.all_gather_into_tensor(whole, x)
    part = torch.empty(4, device=device)
    dist.reduce_scatter_tensor(part, whole)
    root = x.clone()
    dist.broadcast(root, src=world - 1)
    swapped = torch.empty(world, device=device)
    dist.all_to_all_single(swapped, torch.arange(float(world), device=device) + 10 * rank)
    dist.barrier()
    base = torch.arange(4.0)
    wanted = {
        "all_reduce": (total, base * world + sum(range(world))),
        "all_gather_into_tensor": (whole, torch.cat([base + r for r in range(world)])),
        "reduce_scatter_tensor": (part, (base + rank) * world),
        "broadcast": (root, base + world - 1),
        "all_to_all_single": (swapped, torch.tensor([10.0 * r + rank for r in range(world)])),
    }
    for name, (got, want) in wanted.items():
        print(f"rank {rank}: {name}: {'right' if torch.equal(got.cpu(), want) else got.cpu()}")
    layer = torch.nn.Linear(4, 4).to(device)
    dist.broadcast(layer.weight.data, src=0)
    dist.broadcast(layer.bias.data, src=0)
    model = torch.nn.parallel.DistributedDataParallel(layer)
    model(x[None]).sum().backward()
    torch_xla.sync()
    wanted_gradient = (base + (world - 1) / 2).expand(4, 4)
    right = torch.allclose(layer.weight.grad.cpu(), wanted_gradient)
    print(f"rank {rank}: DDP's gradient: {'right' if right else layer.weight.grad.cpu()}")


def work(rank: int) -> None:
    """Each, though another fails."""
    replicas.require(int(os.environ["WORLD_SIZE"]))
    for client in (block, distributed):
        try:
            client(rank, torch_xla.runtime.world_size())
        except Exception as error:
            print(f"rank {rank}: {client.__name__}: {type(error).__name__}: {error}"[:1500])
        sys.stdout.flush()


if __name__ == "__main__":
    torch_xla_cc.launch(work)
