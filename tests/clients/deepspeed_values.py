"""A rank of test_deepspeed: gradients, parameters and states, as users read and write them.

No number of ranks divides the parameters. Beside them is a model of plain torch on all batches.
"""

from __future__ import annotations

import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
import torch.distributed as dist
from deepspeed import utils
from torch import nn

import torch_xla_cc
from torch_xla_cc.adapters import deepspeed as adapter
from torch_xla_cc.adapters import optimizers

STAGE = int(sys.argv[1])
torch_xla_cc.install()
optimizers.install()
adapter.install()
deepspeed.init_distributed()


def made():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3), nn.LayerNorm(3))
    groups = [{"params": list(x.parameters())} for x in (model[0], model[2], model[3])]
    groups[2]["weight_decay"] = 0.0
    return model, torch.optim.AdamW(groups, lr=1e-2, weight_decay=0.1)


def batch(rank):
    return torch.randn(4, 5, generator=torch.Generator().manual_seed(rank))


def loss_of(model, x):
    return (model(x) * torch.arange(3.0, device=x.device)).square().mean()


def near(ours, theirs):
    torch.testing.assert_close(ours.detach().float().cpu(), theirs.detach(), rtol=1e-3, atol=1e-5)


model, optimizer = made()
plain, plain_optimizer = made()
engine, *_ = deepspeed.initialize(
    model=model,
    optimizer=optimizer,
    config={
        "train_micro_batch_size_per_gpu": 4,
        "gradient_clipping": 0.5,
        "zero_optimization": {"stage": STAGE, "stage3_param_persistence_threshold": 0},
    },
)
own = batch(dist.get_rank()).to(engine.device)
for _ in range(3):
    engine.backward(loss_of(engine, own))
    plain_optimizer.zero_grad()
    sum(loss_of(plain, batch(rank)) for rank in range(dist.get_world_size())).backward()
    pairs = list(zip(model.parameters(), plain.parameters(), strict=True))
    for ours, theirs in pairs:
        theirs.grad /= dist.get_world_size()
        whole = utils.safe_get_full_grad(ours)
        near(whole, theirs.grad)
        theirs.grad += 0.25
        utils.safe_set_full_grad(ours, whole + 0.25)
        near(utils.safe_get_full_grad(ours), theirs.grad)
    engine.step()
    norm = nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
    near(torch.as_tensor(engine.get_global_grad_norm()), norm)
    plain_optimizer.step()
    for ours, theirs in pairs:
        near(utils.safe_get_full_fp32_param(ours), theirs)
        for name in ("exp_avg", "exp_avg_sq"):
            near(
                utils.safe_get_full_optimizer_state(ours, name),
                plain_optimizer.state[theirs][name],
            )

ours, theirs = pairs[-2]
changed = torch.arange(1.0, 1.0 + theirs.numel()).view(theirs.shape)
utils.safe_set_full_fp32_param(ours, changed.to(engine.device))
utils.safe_set_full_optimizer_state(ours, changed.to(engine.device) / 2, "exp_avg")
near(utils.safe_get_full_fp32_param(ours), changed)
near(utils.safe_get_full_optimizer_state(ours, "exp_avg"), changed / 2)
for one, other in pairs[:-2]:
    near(utils.safe_get_full_fp32_param(one), other)
print("all are equal", flush=True)
dist.barrier()
dist.destroy_process_group()
