"""FullyShardedDataParallel of torch (FSDP1): parameters, gradients and optimizer state in shards.

torchrun --standalone --nproc-per-node=4 examples/clients/fsdp1.py

--strategy=N: 0 FULL_SHARD, 1 SHARD_GRAD_OP, 2 NO_SHARD, 3 HYBRID_SHARD (of --replicas=2 replicas).
--orig=1 keeps the model's own parameters, --bf16=1 computes in bfloat16, --accumulate=N adds the
gradients of N batches before they are reduced, --clip=1 limits their norm, and --checkpoint=1
computes each block again in the backward pass.
"""

from __future__ import annotations

import contextlib

import torch
from common import Run
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from transformer import Block, Transformer, batch

STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD")

run = Run(__doc__, strategy=0, replicas=2, orig=0, bf16=0, accumulate=1, clip=0, checkpoint=0)
options = run.options
if run.is_xla:
    from torch_xla_cc.adapters import fsdp1

    fsdp1.install()

strategy = ShardingStrategy[STRATEGIES[options.strategy]]
mesh = None
if strategy == ShardingStrategy.HYBRID_SHARD:
    shape = (options.replicas, run.world_size // options.replicas)
    mesh = init_device_mesh(run.device.type, shape, mesh_dim_names=("dp", "shard"))
precision = None
if options.bf16:
    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
model = FullyShardedDataParallel(
    Transformer(blocks=2).to(run.device),
    sharding_strategy=strategy,
    device_mesh=mesh,
    auto_wrap_policy=ModuleWrapPolicy([Block]),
    mixed_precision=precision,
    device_id=run.device,
    use_orig_params=bool(options.orig),
)
if options.checkpoint:
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
batches = [batch(seed=run.rank + run.world_size * n) for n in range(options.accumulate)]
batches = [(words.to(run.device), following.to(run.device)) for words, following in batches]

for step in run.steps():
    optimizer.zero_grad()
    for number, (words, following) in enumerate(batches, 1):
        last = number == options.accumulate
        with contextlib.nullcontext() if last else model.no_sync():
            logits = model(words).float()
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())
            (loss / options.accumulate).backward()
    if options.clip:
        model.clip_grad_norm_(0.5)
    optimizer.step()
    run.say(step, loss.item())
run.end()
