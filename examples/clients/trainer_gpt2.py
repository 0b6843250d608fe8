"""The Trainer of Hugging Face transformers: a small GPT-2, in data parallel.

torchrun --standalone --nproc-per-node=4 examples/clients/trainer_gpt2.py

It logs each step, or one of so many: `--every=10`.
"""

from __future__ import annotations

import os
import tempfile

import torch
from common import Run

run = Run(__doc__, every=1)
if run.is_xla:
    from torch_xla_cc.adapters import accelerate as adapter

    adapter.install()
else:
    os.environ.update(USE_TORCH_XLA="0")

from gpt2 import model_and_tokens  # noqa: E402 (after install)
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed  # noqa: E402


class Says(TrainerCallback):
    def on_log(self, args, state, control, logs, **_):
        if "loss" in logs:
            run.say(state.global_step - 1, logs["loss"])


set_seed(0)
model, tokens = model_and_tokens()
folder = tempfile.mkdtemp()
trainer = Trainer(
    model,
    TrainingArguments(
        folder,
        max_steps=run.options.steps,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        optim="adamw_torch",  # the fused one, which is the default, knows no XLA devices
        logging_steps=run.options.every,
        logging_nan_inf_filter=False,  # which reads the loss in each step
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=not run.is_xla,
    ),
    train_dataset=[{"input_ids": one, "labels": one} for one in tokens],
    callbacks=[Says()],
)
next(run.steps())  # one call trains all steps, from here
trainer.train()
assert model.device.type == run.device.type
trainer.save_model(folder)
if run.rank == 0:
    saved = type(model).from_pretrained(folder).state_dict()
    for name, value in model.state_dict().items():
        assert torch.equal(saved[name], value.cpu()), name
run.end()
