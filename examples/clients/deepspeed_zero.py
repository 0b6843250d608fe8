"""ZeRO of DeepSpeed: optimizer states (--stage=1), gradients (2), parameters (3) are partitioned.

torchrun --standalone --nproc-per-node=4 examples/clients/deepspeed_zero.py --stage=3

`--offload=1` keeps the optimizer and its states on the host.
"""

from __future__ import annotations

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # what deepspeed is to take until install()

import deepspeed
import torch
from common import Run
from torch import nn

run = Run(__doc__, stage=1, bf16=0, offload=0)
if run.is_xla:
    from torch_xla_cc.adapters import deepspeed as adapter

    adapter.install()
else:
    # On the host deepspeed would compile a library that training does not use, for two minutes.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4))
engine, *_ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2),
    config={
        "train_micro_batch_size_per_gpu": 32,
        "zero_optimization": {
            "stage": run.options.stage,
            "stage3_param_persistence_threshold": 0,  # partition small parameters too
            "offload_optimizer": {"device": "cpu"} if run.options.offload else None,
        },
        "zero_force_ds_cpu_optimizer": False,  # on the host too, torch's own will do
        "bf16": {"enabled": bool(run.options.bf16)},
    },
)

generator = torch.Generator().manual_seed(run.rank)
x = torch.randn(32, 16, generator=generator)
y = x[:, :4].sin().to(run.device)
x = x.to(run.device)
if run.options.bf16:
    x, y = x.bfloat16(), y.bfloat16()

for step in run.steps():
    loss = nn.functional.mse_loss(engine(x), y)
    engine.backward(loss)
    engine.step()
    run.say(step, loss.item())
run.end()
