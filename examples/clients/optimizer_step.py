"""torch_xla's data parallelism: optimizer_step, broadcast_master_param, mesh_reduce, data loaders.

python examples/clients/optimizer_step.py
"""

from __future__ import annotations

import argparse

import launched
import torch
from torch import nn


def train(rank: int, options: argparse.Namespace) -> list[float]:
    """One rank's losses, which are those of all ranks."""
    import torch_xla
    from torch_xla.core import xla_model as xm
    from torch_xla.distributed.parallel_loader import MpDeviceLoader

    device = torch_xla.device()
    model = launched.model().to(device)
    if rank > 0:  # the master's parameters are those of all
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
    xm.broadcast_master_param(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    losses = []
    batches = [launched.part(step, rank) for step in range(options.steps)]
    for x, y in MpDeviceLoader(batches, device):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        if options.clip:
            xm.reduce_gradients(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        else:
            xm.optimizer_step(optimizer)  # the same, and nothing in between
        torch_xla.sync()
        losses.append(xm.mesh_reduce("loss", loss.item(), lambda all: sum(all) / len(all)))
    xm.rendezvous("end")
    return losses


if __name__ == "__main__":
    launched.main(train, __doc__ or "", clip=1)
