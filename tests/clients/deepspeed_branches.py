"""A rank of test_deepspeed: ranks go through other layers of a model.

The gradients of a step are those of all ranks, averaged: of a layer that a rank has not used it has
zeros. Beside it is the same model in plain torch.
"""

from __future__ import annotations

import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

import torch_xla_cc
from torch_xla_cc.adapters import deepspeed as adapter
from torch_xla_cc.adapters import optimizers

torch_xla_cc.install()
optimizers.install()
adapter.install()
deepspeed.init_distributed()
rank, size = dist.get_rank(), dist.get_world_size()


def made():
    torch.manual_seed(0)
    layers = [nn.Linear(5, 7), nn.Linear(7, 3), nn.Linear(7, 3)]
    model = nn.ModuleList(layers)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def loss_of(model, step, of):
    """Of a rank's batch; which layer it takes changes with the step."""
    first, *branches = model
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(10 * step + of))
    hidden = first(x.to(first.weight.device)).tanh()
    return branches[(step + of) % 2](hidden).square().mean()


model, optimizer = made()
plain, plain_optimizer = made()
engine, *_ = deepspeed.initialize(
    model=model,
    optimizer=optimizer,
    config={
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": int(sys.argv[1])},
    },
)
for step in range(4):
    engine.backward(loss_of(engine.module, step, rank))
    engine.step()
    plain_optimizer.zero_grad()
    (sum(loss_of(plain, step, of) for of in range(size)) / size).backward()
    plain_optimizer.step()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(
            ours.detach().float().cpu(), theirs.detach(), rtol=1e-3, atol=1e-5
        )
print("all are equal", flush=True)
dist.barrier()
dist.destroy_process_group()
