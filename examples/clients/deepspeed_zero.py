"""ZeRO of DeepSpeed: optimizer states (--stage=1), gradients (2), parameters (3) are partitioned.

torchrun --standalone --nproc-per-node=4 examples/clients/deepspeed_zero.py --stage=3

`--offload=1` keeps the optimizer and its states on the host. `--groups=2` has no weight decay for
biases. `--accumulate=2` steps after two batches, and `--clip=1` clips gradients to a norm of 0.1.
`--width=37` is of layers whose parameters no number of ranks divides. `--overlap=1`,
`--contiguous=0`, `--scatter=0`, `--round-robin=1` and `--persist=1000` are ZeRO's own settings.
"""

from __future__ import annotations

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # what deepspeed is to take until install()

import deepspeed
import torch
from common import Run
from torch import nn

of_zero = {"overlap": 0, "contiguous": 1, "scatter": 1, "round_robin": 0, "persist": 0}
run = Run(
    __doc__,
    **{"stage": 1, "bf16": 0, "offload": 0, "width": 64},
    **{"groups": 1, "accumulate": 1, "clip": 0, **of_zero},
)
if run.is_xla:
    from torch_xla_cc.adapters import deepspeed as adapter

    adapter.install()
else:
    # On the host deepspeed would compile a library that training does not use, for two minutes.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
width = run.options.width
model = nn.Sequential(nn.Linear(16, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 4))
groups = [{"params": list(model.parameters())}]
if run.options.groups == 2:
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
engine, *_ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.AdamW(groups, lr=1e-2),
    config={
        "train_micro_batch_size_per_gpu": 32,
        "gradient_accumulation_steps": run.options.accumulate,
        **({"gradient_clipping": 0.1 * run.options.clip} if run.options.clip else {}),
        "zero_optimization": {
            "stage": run.options.stage,
            "overlap_comm": bool(run.options.overlap),
            "contiguous_gradients": bool(run.options.contiguous),
            "reduce_scatter": bool(run.options.scatter),
            "round_robin_gradients": bool(run.options.round_robin),
            # at 0 small parameters are partitioned too
            "stage3_param_persistence_threshold": run.options.persist,
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
    for _ in range(run.options.accumulate):
        loss = nn.functional.mse_loss(engine(x), y)
        engine.backward(loss)
        engine.step()
    run.say(step, loss.item())
run.end()
