"""ZeroRedundancyOptimizer of torch_xla: optimizer state in shards.

python examples/clients/xla_zero.py
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
    from torch_xla.distributed.zero_redundancy_optimizer import ZeroRedundancyOptimizer

    model = launched.model().to(torch_xla.device())
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(),
        torch.optim.AdamW,
        lr=1e-2,
        grad_clipping=True,
        max_norm=1.0,
        pin_layout=bool(options.pin_layout),
        bucket_cap_mb_all_gather=options.bucket_mb,
        bucket_cap_mb_reduce_scatter=options.bucket_mb,
        use_grad_acc_hook=bool(options.hook),
    )

    losses = []
    for step in range(options.steps):
        x, y = (tensor.to(torch_xla.device()) for tensor in launched.part(step, rank))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        average = xm.all_reduce(xm.REDUCE_SUM, loss.detach(), scale=1 / launched.RANKS)
        torch_xla.sync()
        losses.append(average.item())
    return losses


if __name__ == "__main__":
    launched.main(train, __doc__ or "", bucket_mb=0, pin_layout=1, hook=0)
