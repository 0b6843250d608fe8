"""XlaFullyShardedDataParallel of torch_xla: parameters, gradients and optimizer state in shards.

python examples/clients/xla_fsdp.py
"""

from __future__ import annotations

import argparse

import launched
import torch
from torch import nn

OPTIONS = {"reshard": 1, "flatten": 1, "bf16": 0, "checkpoint": 0, "bucket_mb": 0, "coalesce": 0}
OPTIONS["multiple"] = 128  # of elements, to which shards are padded


def train(rank: int, options: argparse.Namespace) -> list[float]:
    """One rank's losses, which are those of all ranks."""
    import torch_xla
    from torch_xla.core import xla_model as xm
    from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP
    from torch_xla.distributed.fsdp import checkpoint_module

    def wrap(module: nn.Module) -> nn.Module:
        return FSDP(
            module,
            reshard_after_forward=bool(options.reshard),
            flatten_parameters=bool(options.flatten),
            compute_dtype=torch.bfloat16 if options.bf16 else torch.float32,
            reduce_scatter_bucket_size_mb=options.bucket_mb,
            coalesce_all_gather_ops=options.coalesce > 0,
            shard_param_on_dim_0=options.coalesce > 0,
            _shard_size_multiple=options.multiple,
        )

    model = launched.model()
    for number, block in enumerate(model.blocks):
        model.blocks[number] = wrap(checkpoint_module(block) if options.checkpoint else block)
    model = wrap(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    losses = []
    for step in range(options.steps):
        x, y = (tensor.to(torch_xla.device()) for tensor in launched.part(step, rank))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x).float(), y)
        loss.backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()  # not xm.optimizer_step: gradients are reduced already
        average = xm.all_reduce(xm.REDUCE_SUM, loss.detach(), scale=1 / launched.RANKS)
        torch_xla.sync()
        losses.append(average.item())
    return losses


if __name__ == "__main__":
    launched.main(train, __doc__ or "", **OPTIONS)
