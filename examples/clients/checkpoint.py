"""torch.distributed.checkpoint: save on some ranks, load on others.

torchrun --standalone --nproc-per-node=4 examples/clients/checkpoint.py --steps=15
torchrun --standalone --nproc-per-node=2 examples/clients/checkpoint.py --steps=15 --load=1

The folder is that of the environment variable CHECKPOINT, or "checkpoint".
"""

from __future__ import annotations

import os

import torch
import torch.distributed.checkpoint as dcp
from common import Run
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor

run = Run(__doc__, load=0)
if run.is_xla:
    from torch_xla_cc.adapters import dtensor

    dtensor.install()

mesh = init_device_mesh(run.device.type, (run.world_size,))


def shard(_: str, module: nn.Module, mesh: object) -> None:
    """Each rank has rows of each parameter."""
    for name, parameter in module.named_parameters(recurse=False):
        module.register_parameter(
            name, nn.Parameter(distribute_tensor(parameter, mesh, [Shard(0)]))
        )


model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4)).to(run.device)
distribute_module(model, mesh, shard)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

folder = os.environ.get("CHECKPOINT", "checkpoint")
first = 0
if run.options.load:
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "step": 0}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    first = state["step"]

data = torch.randn(32, 16, generator=torch.Generator().manual_seed(0)).to(run.device)
x = DTensor.from_local(data, mesh, [Replicate()])
y = DTensor.from_local(data[:, :4].sin(), mesh, [Replicate()])

for step in run.steps():
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()
    run.say(first + step, loss.full_tensor().item())

weights, moments = get_state_dict(model, optimizer)
state = {"model": weights, "optimizer": moments, "step": first + run.options.steps}
dcp.save(state, checkpoint_id=folder)
run.end()
