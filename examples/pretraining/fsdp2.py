"""Trains a GPT of 10 million parameters on bytes, its parameters sharded over all ranks (FSDP2).

TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 PJRT_DEVICE=POD \
    torchrun --standalone --nproc-per-node=4 --max-restarts=3 examples/pretraining/fsdp2.py
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import training as shared
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from torch_xla_cc.adapters import fsdp


class Block(nn.Module):
    """Causal attention and a perceptron, each after a norm."""

    def __init__(self) -> None:
        super().__init__()
        width = shared.WIDTH
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.qkv(self.norm1(x)).unflatten(-1, (3, shared.HEADS, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Bytes to the logits of the next ones."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(shared.VOCABULARY, shared.WIDTH)
        self.places = nn.Parameter(torch.randn(shared.LENGTH, shared.WIDTH) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm = nn.LayerNorm(shared.WIDTH)
        self.head = nn.Linear(shared.WIDTH, shared.VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.bytes(tokens) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


run = shared.begin(__doc__)
fsdp.install()
mesh = init_device_mesh("xla", (dist.get_world_size(),))
model = GPT(run.layers).to(run.device)
for part in (*model.blocks, model):
    fully_shard(part, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=shared.RATE, betas=(0.9, 0.95))
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: shared.rate(step, run.steps))


def step_once(step: int) -> torch.Tensor:
    tokens, following = (
        x.to(run.device) for x in shared.batch(step, dist.get_rank(), dist.get_world_size())
    )
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), following.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    mean = loss.detach().clone()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    optimizer.step()
    schedule.step()
    return mean


def save(folder: Path) -> None:
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "schedule": schedule.state_dict()}
    dcp.save(state, checkpoint_id=folder)


def load(folder: Path) -> None:
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "schedule": schedule.state_dict()}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    schedule.load_state_dict(state["schedule"])


shared.train(run, step_once, save, load)
