"""Tensor and sequence parallelism with DTensor: a small transformer on a mesh of (dp, tp).

torchrun --standalone --nproc-per-node=4 examples/clients/dtensor_tp.py --tp=2

--fsdp=1 shards the parts of the model over dp too (fully_shard).
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from common import Run
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from transformer import Transformer, batch


def parallelize(model: Transformer, mesh: DeviceMesh) -> None:
    """Split the layers of the model; between them each rank has a part of the sequence."""
    whole_input = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate())
    for block in model.blocks:
        plan = {
            "norm1": SequenceParallel(),
            "attention": whole_input,
            "attention.q": ColwiseParallel(),
            "attention.k": ColwiseParallel(),
            "attention.v": ColwiseParallel(),
            "attention.out": RowwiseParallel(output_layouts=Shard(1)),
            "norm2": SequenceParallel(),
            "perceptron": whole_input,
            "perceptron.up": ColwiseParallel(),
            "perceptron.down": RowwiseParallel(output_layouts=Shard(1)),
        }
        parallelize_module(block, mesh, plan)
    plan = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(
            input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False
        ),
    }
    parallelize_module(model, mesh, plan)


def average(model: nn.Module, group: dist.ProcessGroup) -> None:
    """Average the gradients of ranks with the same part of the model and other data."""
    for parameter in model.parameters():
        gradient = parameter.grad
        assert isinstance(gradient, DTensor)
        dist.all_reduce(gradient.to_local(), group=group)
        gradient.div_(group.size())


run = Run(__doc__, tp=4, fsdp=0)
if run.is_xla:
    from torch_xla_cc.adapters import fsdp

    fsdp.install()  # and what DTensor needs, which alone is adapters.dtensor

tp = run.options.tp
mesh = init_device_mesh(run.device.type, (run.world_size // tp, tp), mesh_dim_names=("dp", "tp"))
model = Transformer(blocks=1).to(run.device)
parallelize(model, mesh["tp"])
if run.options.fsdp:
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
words, following = (x.to(run.device) for x in batch(seed=mesh["dp"].get_local_rank()))

for step in run.steps():
    optimizer.zero_grad()
    with loss_parallel():
        loss = nn.functional.cross_entropy(model(words).flatten(0, 1), following.flatten())
        loss.backward()
    said = loss.detach().full_tensor()  # in the step's program: after it, it would be another
    if mesh["dp"].size() > 1 and not run.options.fsdp:
        average(model, mesh.get_group("dp"))
    optimizer.step()
    run.say(step, said.item())
run.end()
