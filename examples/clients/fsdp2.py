"""fully_shard of torch (FSDP2): parameters, gradients and the optimizer's state are sharded.

torchrun --standalone --nproc-per-node=4 examples/clients/fsdp2.py

--replicas=N makes N copies of the shards (HSDP), --bf16=1 computes in bfloat16, and --accumulate=N
adds the gradients of N batches before they are reduced.
"""

from __future__ import annotations

import torch
from common import Run
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformer import Transformer, batch

run = Run(__doc__, replicas=1, bf16=0, accumulate=1)
options = run.options
if run.is_xla:
    from torch_xla_cc.adapters import fsdp

    fsdp.install()

shape = (run.world_size // options.replicas,)
if options.replicas > 1:
    shape = (options.replicas, *shape)
mesh = init_device_mesh(run.device.type, shape, mesh_dim_names=("dp", "shard")[-len(shape) :])
precision = MixedPrecisionPolicy()
if options.bf16:
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
model = Transformer(blocks=1).to(run.device)
for block in model.blocks:
    fully_shard(block, mesh=mesh, mp_policy=precision)
fully_shard(model, mesh=mesh, mp_policy=precision)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
batches = [batch(seed=run.rank + run.world_size * n) for n in range(options.accumulate)]
batches = [(words.to(run.device), following.to(run.device)) for words, following in batches]

for step in run.steps():
    optimizer.zero_grad()
    for number, (words, following) in enumerate(batches, 1):
        model.set_requires_gradient_sync(number == options.accumulate)
        logits = model(words).float()
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())
        (loss / options.accumulate).backward()
    optimizer.step()
    run.say(step, loss.item())
run.end()
