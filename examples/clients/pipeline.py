"""torch.distributed.pipelining: a transformer in as many stages as ranks.

torchrun --standalone --nproc-per-node=4 examples/clients/pipeline.py
torchrun --standalone --nproc-per-node=4 examples/clients/pipeline.py --one-f-one-b=1
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from common import Run
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from transformer import Transformer, batch

from torch_xla_cc.adapters import pipelining


def cross_entropy(logits: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten())


run = Run(__doc__, one_f_one_b=0)
pipelining.install()  # gloo needs it too
last = run.world_size - 1
whole = Transformer(blocks=run.world_size)  # the same on all ranks; each keeps its part
layers: list[nn.Module] = [whole.blocks[run.rank]]
if run.rank == 0:
    layers = [whole.embedding, *layers]
if run.rank == last:
    layers = [*layers, whole.norm, whole.head]
part = nn.Sequential(*layers).to(run.device)
stage = PipelineStage(part, run.rank, run.world_size, run.device)
kind = Schedule1F1B if run.options.one_f_one_b else ScheduleGPipe
schedule = kind(stage, n_microbatches=4, loss_fn=cross_entropy)
optimizer = torch.optim.AdamW(part.parameters(), lr=3e-3)
words, following = (x.to(run.device) for x in batch(seed=0, size=8))

for step in run.steps():
    optimizer.zero_grad()
    losses: list[torch.Tensor] = []
    if run.rank == 0:
        schedule.step(words)
    elif run.rank == last:
        schedule.step(target=following, losses=losses)
    else:
        schedule.step()
    optimizer.step()
    loss = torch.stack(losses).mean().detach() if losses else torch.zeros((), device=run.device)
    dist.broadcast(loss, src=last)
    run.say(step, loss.item())
run.end()
