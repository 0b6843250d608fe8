"""The demo's transformer, with calls of torch.distributed; see pod_steps.py.

Ranks that are CPU processes have no other calls (docs/ranks.md), so both sides make these.
"""

from __future__ import annotations

import argparse
import sys
import types
from pathlib import Path

import torch
import torch.distributed as dist

import torch_xla_cc.distributed  # noqa: F401, the backend

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import demo
import tensor_parallel


def all_gather(x: torch.Tensor, dim: int = 0) -> torch.Tensor:
    assert dim == 0
    whole = x.new_empty(x.shape[0] * dist.get_world_size(), *x.shape[1:])
    dist.all_gather_into_tensor(whole, x.contiguous())
    return whole


def reduce_scatter(kind: object, x: torch.Tensor, scatter_dim: int = 0) -> torch.Tensor:
    assert scatter_dim == 0
    part = x.new_empty(x.shape[0] // dist.get_world_size(), *x.shape[1:])
    dist.reduce_scatter_tensor(part, x.contiguous(), kind)
    return part


def all_reduce(kind: object, x: torch.Tensor | list[torch.Tensor]) -> object:
    for one in x if isinstance(x, list) else [x]:
        dist.all_reduce(one, kind)
    return x


def main() -> None:
    """Train it, and say each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    steps = parser.parse_args().steps
    dist.init_process_group("xla_cc")
    calls = types.SimpleNamespace(
        REDUCE_SUM=dist.ReduceOp.SUM,
        all_gather=all_gather,
        reduce_scatter=reduce_scatter,
        all_reduce=all_reduce,
    )
    demo.xm = tensor_parallel.xm = calls
    rank = dist.get_rank()

    def say(step: int) -> None:
        if rank == 0:
            print(f"step {step}", flush=True)

    demo.train(rank, dist.get_world_size(), steps, demo.Sizes(), say)


if __name__ == "__main__":
    main()
