"""A rank of test_deepspeed: what a configuration of deepspeed makes, and checkpoints."""

from __future__ import annotations

import os
import sys
import tempfile

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
from torch import nn

import torch_xla_cc
from torch_xla_cc.adapters import deepspeed as adapter
from torch_xla_cc.adapters import optimizers

torch_xla_cc.install()
optimizers.install()
adapter.install()
deepspeed.init_distributed()  # makes the world, by the accelerator's backend
assert dist.get_backend(torch.distributed.group.WORLD) is not None
assert dist.get_backend_config() == "cpu:gloo,xla:xla_cc"


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)
        self.last.weight = self.first.weight

    def forward(self, x):
        return self.last(self.first(x).relu())


def make(stage, torch_optimizer=None, **config):
    """An engine. The optimizer is of parameters that deepspeed has yet to move."""
    torch.manual_seed(0)
    model = Tied()
    zero = {
        "stage": stage,
        "reduce_bucket_size": 512,
        "stage3_param_persistence_threshold": 0,
    }
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        optimizer=torch_optimizer
        and torch_optimizer(model.parameters(), lr=1e-2, weight_decay=0.1),
        config={"train_micro_batch_size_per_gpu": 4, "zero_optimization": zero, **config},
    )
    return engine


def train(engine, steps=2):
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
    x = x.to(engine.device)
    losses = []
    for _ in range(steps):
        loss = nn.functional.mse_loss(engine(x), x)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def fused_adam(name, reference):
    """The optimizer that deepspeed makes of its configuration."""
    config = {"type": name, "params": {"lr": 1e-2, "weight_decay": 0.1}}
    if name == "Adam":
        config["params"]["adam_w_mode"] = False
    engine = make(1, optimizer=config)
    assert type(engine.optimizer.optimizer).__name__ == "FusedAdam"
    torch.testing.assert_close(train(engine, 3), train(make(1, reference), 3), rtol=1e-6, atol=0)


def checkpoint(stage, folder):
    engine = make(stage, torch.optim.AdamW)
    train(engine)
    engine.save_checkpoint(folder)
    weights = get_fp32_state_dict_from_zero_checkpoint(folder)
    with deepspeed.zero.GatheredParameters(list(engine.module.parameters()), enabled=stage == 3):
        for name, value in engine.module.state_dict().items():
            torch.testing.assert_close(weights[name], value.cpu(), rtol=0, atol=0)
    later = train(engine)
    again = make(stage, torch.optim.AdamW)
    again.load_checkpoint(folder)
    assert train(again) == later
    assert later[-1] < later[0]


if sys.argv[1] == "adam":
    fused_adam("AdamW", torch.optim.AdamW)
    fused_adam("Adam", torch.optim.Adam)
else:
    folders = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folders)
    checkpoint(int(sys.argv[1]), folders[0])
dist.barrier()
dist.destroy_process_group()
