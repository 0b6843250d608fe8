"""Tensor parallelism in torch_xla's SPMD mode: one process, and a region sharded by hand.

    CPU_NUM_DEVICES=4 PJRT_DEVICE=CPU python examples/spmd.py

A perceptron of two layers is trained. Its first weight is cut by columns and its second by rows
along the axis "model" of a mesh, and the batch along "data"; what the partitions have to add up is
an all_reduce of ours. All else is torch_xla's automatic sharding.
"""

from __future__ import annotations

import torch
import torch_xla
import torch_xla.runtime as xr
from torch_xla.distributed.spmd import Mesh

from torch_xla_cc import functions, spmd


def train(steps: int = 10) -> list[float]:
    """The losses."""
    xr.use_spmd()
    mesh = Mesh(list(range(4)), (2, 2), ("data", "model"))

    def layers(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        part = torch.tanh(x @ up) @ down  # of this partition's columns and rows
        return functions.all_reduce("sum", part, groups=spmd.groups(mesh, "model"))

    mapped = spmd.shard_map(
        layers,
        mesh,
        in_specs=[("data", None), (None, "model"), ("model", None)],
        out_specs=("data", None),
    )
    torch.manual_seed(0)
    device = torch_xla.device()
    x = torch.randn(32, 16)
    y = x[:, :4].sin().to(device)
    x = x.to(device)
    weights = [torch.randn(16, 64) / 4, torch.randn(64, 4) / 8]
    weights = [weight.to(device).requires_grad_() for weight in weights]
    optimizer = torch.optim.AdamW(weights, lr=1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(mapped(x, *weights), y)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"step {step}: loss {loss:.4f}")
