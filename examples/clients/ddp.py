"""DistributedDataParallel of torch: gradients are averaged bucket by bucket.

torchrun --standalone --nproc-per-node=4 examples/clients/ddp.py

--accumulate=N adds the gradients of N batches before they are averaged (no_sync). --unused=1 has
layers that no loss depends on, --compress=1 sends bfloat16, --static=1 says that the graph does not
change, --bucket-kb=N is the size of a bucket, --uneven=1 gives ranks different numbers of batches
(join).
"""

from __future__ import annotations

import contextlib

import torch
from common import Run
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

run = Run(__doc__, accumulate=1, unused=0, compress=0, static=0, bucket_kb=25 * 1024, uneven=0)
options = run.options


class Model(nn.Module):
    """Two layers, and one that is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4))
        if options.unused:
            self.unused = nn.Linear(64, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


model = nn.parallel.DistributedDataParallel(
    Model().to(run.device),
    find_unused_parameters=bool(options.unused),
    static_graph=bool(options.static),
    bucket_cap_mb=options.bucket_kb / 1024,
)
if options.compress:
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

generator = torch.Generator().manual_seed(run.rank)
x = torch.randn(options.accumulate, 32, 16, generator=generator)
y = x[..., :4].sin().to(run.device)
x = x.to(run.device)

joining = model.join() if options.uneven else contextlib.nullcontext()
with joining:
    for step in run.steps():
        if options.uneven and step >= options.steps - run.rank:
            break  # the others go on
        optimizer.zero_grad()
        for index in range(options.accumulate):
            averages = index == options.accumulate - 1
            with contextlib.nullcontext() if averages else model.no_sync():
                loss = nn.functional.mse_loss(model(x[index]), y[index]) / options.accumulate
                loss.backward()
        optimizer.step()
        run.say(step, loss.item())
run.end()
