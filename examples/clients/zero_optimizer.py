"""ZeroRedundancyOptimizer of torch: each rank updates, and keeps the state of, a part of the model.

torchrun --standalone --nproc-per-node=4 examples/clients/zero_optimizer.py
"""

from __future__ import annotations

import torch
from common import Run
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

run = Run(__doc__)
model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4))
model = nn.parallel.DistributedDataParallel(model.to(run.device))
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2)

generator = torch.Generator().manual_seed(run.rank)
x = torch.randn(32, 16, generator=generator)
y = x[:, :4].sin().to(run.device)
x = x.to(run.device)

for step in run.steps():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    run.say(step, loss.item())
run.end()
