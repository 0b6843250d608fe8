"""Data parallel training on however many processes you start, on however many machines.

    PJRT_DEVICE=POD torchrun --standalone --nproc-per-node=2 examples/cluster/train.py

Nothing in it knows where it runs: docs/clusters.md starts it on several hosts, on a TPU slice,
under SLURM, on Kubernetes and by Ray. `--fail=1` has rank 1 raise in the middle, so that you can
see what your cluster makes of it.
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch_xla

import torch_xla_cc.distributed  # noqa: F401  # registers the backend
import txcc_pod

txcc_pod.register()  # of use in a source tree only: an installed torch_xla_cc is found without it


def parsed(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--fail", type=int, default=-1, metavar="RANK", help="raises half-way")
    return parser.parse_args(arguments)


def train(steps, fail=-1):
    """Fit a line, each rank on data of its own; the last loss."""
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch_xla.device()
    torch.manual_seed(0)  # the same on all ranks, so that they begin with equal parameters
    model = torch.nn.Linear(8, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(rank)
    for step in range(steps):
        if rank == fail and step == steps // 2:
            raise ValueError(f"rank {rank} fails in step {step}, as --fail={fail} asks")
        x = torch.randn(32, 8, generator=data)
        x, y = x.to(device), x.sum(1, keepdim=True).to(device)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
        optimizer.step()
        torch_xla.sync()
        if step % 5 == 0:  # all ranks ask: on a TPU they all have to run the same
            dist.all_reduce(loss, op=dist.ReduceOp.AVG)
            print(f"rank {rank} of {size}: step {step}, loss {loss.item():.4f}", flush=True)
    return loss.item()


if __name__ == "__main__":
    options = parsed()
    dist.init_process_group("xla_cc")
    place = f"{socket.gethostname()}, process {os.getpid()}"
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {place}", flush=True)
    last = train(options.steps, options.fail)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: done, {last:.4f}", flush=True)
    dist.destroy_process_group()
