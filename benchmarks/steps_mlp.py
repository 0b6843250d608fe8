"""One rank's training of an MLP in four ways, as people write it: for torchrun, or a dry run.

    txcc inspect --rank=1 --target=tpu:v5e:2x4 benchmarks/steps_mlp.py -- --how=fsdp

--how: ddp, fsdp (fully_shard of each pair of layers), fsdp_bf16 (which computes and reduces in it),
tp (pairs of layers split by columns and rows), or sp (so, and the tokens are split between pairs).
steps_jax.py has the same model in JAX.
"""

from __future__ import annotations

import argparse

import steps_sizes as sizes
import torch
import torch.distributed as dist
import torch_xla
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

import torch_xla_cc.distributed
from torch_xla_cc.adapters import fsdp, optimizers


def layer() -> nn.Sequential:
    """A pair of linear layers."""
    return nn.Sequential(
        nn.Linear(sizes.WIDTH, sizes.INNER), nn.GELU(), nn.Linear(sizes.INNER, sizes.WIDTH)
    )


def split(model: nn.Module, mesh: DeviceMesh, tokens: Replicate | Shard) -> None:
    """By columns and by rows; `tokens` is how the ranks have them between layers."""
    enter = PrepareModuleInput(input_layouts=tokens, desired_input_layouts=Replicate())
    plan = {
        "": enter,
        "0": ColwiseParallel(),
        "2": RowwiseParallel(output_layouts=tokens),
    }
    for part in model.children():
        parallelize_module(part, mesh, plan)


def main() -> None:
    """Train for three steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--how", choices=sizes.HOW, required=True)
    how = parser.parse_args().how
    torch_xla_cc.install()
    optimizers.install()
    fsdp.install()
    dist.init_process_group("xla_cc")
    device = torch_xla.device()
    mesh = init_device_mesh("xla", (dist.get_world_size(),))
    model: nn.Module = nn.Sequential(*(layer() for _ in range(sizes.LAYERS))).to(device)
    tokens = sizes.TOKENS
    if how == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    elif how.startswith("fsdp"):
        precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if "bf16" in how else None)
        for part in (*model.children(), model):
            fully_shard(part, mesh=mesh, mp_policy=precision)
    else:
        split(model, mesh, Shard(0) if how == "sp" else Replicate())
        tokens = tokens // dist.get_world_size() if how == "sp" else tokens
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(tokens, sizes.WIDTH).to(device)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).float().square().mean().backward()
        optimizer.step()


main()
