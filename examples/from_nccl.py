"""The script of docs/coming_from_nccl.md, after the change.

torchrun --standalone --nproc-per-node=2 examples/from_nccl.py
"""

import torch
import torch.distributed as dist
import torch_xla
from torch import nn

import torch_xla_cc.distributed  # noqa: F401 (registers xla_cc)
from torch_xla_cc.adapters import optimizers

optimizers.install()
dist.init_process_group("cpu:gloo,xla:xla_cc")
device = torch_xla.device()

torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(16, 4).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(dist.get_rank())
x = torch.randn(32, 16, generator=generator).to(device)

for step in range(5):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    total = loss.detach().clone()
    work = dist.all_reduce(total, async_op=True)
    work.wait()
    if dist.get_rank() == 0:
        print(f"step {step}: loss {total.item() / dist.get_world_size()!r}", flush=True)

torch_xla.sync(wait=True)
dist.barrier()
dist.destroy_process_group()
