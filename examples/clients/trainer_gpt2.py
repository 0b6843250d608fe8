"""The Trainer of Hugging Face transformers: a small GPT-2, in data parallel.

torchrun --standalone --nproc-per-node=4 examples/clients/trainer_gpt2.py
"""

from __future__ import annotations

import os
import tempfile

import torch
from common import Run

run = Run(__doc__)
if run.is_xla:
    from torch_xla_cc.adapters import accelerate as adapter

    adapter.install()
else:
    os.environ.update(USE_TORCH_XLA="0")

from transformers import (  # noqa: E402 (after install)
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


class Says(TrainerCallback):
    def on_log(self, args, state, control, logs, **_):
        if "loss" in logs:
            run.say(state.global_step - 1, logs["loss"])


set_seed(0)
config = GPT2Config(
    n_layer=1, n_head=2, n_embd=32, vocab_size=64, n_positions=16, bos_token_id=0, eos_token_id=0,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
)  # fmt: skip
model = GPT2LMHeadModel(config)
# Sequences that count up, from random numbers.
tokens = (torch.randint(64, (64, 1)) + torch.arange(16)) % 64
folder = tempfile.mkdtemp()
trainer = Trainer(
    model,
    TrainingArguments(
        folder,
        max_steps=run.options.steps,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        optim="adamw_torch",  # the fused one, which is the default, knows no XLA devices
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=not run.is_xla,
    ),
    train_dataset=[{"input_ids": one, "labels": one} for one in tokens],
    callbacks=[Says()],
)
for _ in run.steps():  # one call trains all steps
    trainer.train()
    break
assert model.device.type == run.device.type
trainer.save_model(folder)
if run.rank == 0:
    saved = GPT2LMHeadModel.from_pretrained(folder).state_dict()
    for name, value in model.state_dict().items():
        assert torch.equal(saved[name], value.cpu()), name
run.end()
