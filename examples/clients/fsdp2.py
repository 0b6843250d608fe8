"""fully_shard of torch (FSDP2): parameters, gradients and the optimizer's state are sharded.

torchrun --standalone --nproc-per-node=4 examples/clients/fsdp2.py
"""

from __future__ import annotations

import torch
from common import Run
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformer import Transformer, batch

run = Run(__doc__)
if run.is_xla:
    from torch_xla_cc.adapters import fsdp

    fsdp.install()

mesh = init_device_mesh(run.device.type, (run.world_size,))
model = Transformer(blocks=2).to(run.device)
for block in model.blocks:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
words, following = (x.to(run.device) for x in batch(seed=run.rank))

for step in run.steps():
    optimizer.zero_grad()
    logits = model(words)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())
    loss.backward()
    optimizer.step()
    run.say(step, loss.item())
run.end()
