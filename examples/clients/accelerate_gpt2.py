"""accelerate of Hugging Face: a small GPT-2 of transformers, in data parallel.

torchrun --standalone --nproc-per-node=4 examples/clients/accelerate_gpt2.py
"""

from __future__ import annotations

import os

import torch
from common import Run

run = Run(__doc__)
if run.is_xla:
    from torch_xla_cc.adapters import accelerate as adapter

    adapter.install()
else:
    os.environ.update(USE_TORCH_XLA="0", ACCELERATE_USE_CPU="true")

from accelerate import Accelerator  # noqa: E402 (after install)
from accelerate.utils import set_seed  # noqa: E402
from gpt2 import model_and_tokens  # noqa: E402

accelerator = Accelerator()
set_seed(0)
model, tokens = model_and_tokens()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = torch.utils.data.DataLoader(tokens, batch_size=4, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
assert model.device.type == run.device.type


def batches():
    """Those of this rank, again and again."""
    while True:
        yield from loader


for step, batch in zip(run.steps(), batches(), strict=False):
    optimizer.zero_grad()
    loss = model(batch, labels=batch).loss
    accelerator.backward(loss)
    said = accelerator.gather_for_metrics(loss.detach()).mean()  # in the step's program
    optimizer.step()
    run.say(step, said.item())
run.end()
