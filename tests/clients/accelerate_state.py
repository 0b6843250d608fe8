"""A rank of test_accelerate: save_state, load_state, and what gather_for_metrics drops."""

from __future__ import annotations

import os
import tempfile

import safetensors.torch
import torch
import torch.distributed as dist

import torch_xla_cc
from torch_xla_cc.adapters import accelerate as adapter
from torch_xla_cc.adapters import optimizers

torch_xla_cc.install()
optimizers.install()
adapter.install()  # makes the world

from accelerate import Accelerator, PartialState  # noqa: E402 (after install)

accelerator = Accelerator(gradient_accumulation_steps=2)
assert accelerator.device.type == "xla"
assert accelerator.num_processes == dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = torch.arange(7.0).repeat(4, 1).T.contiguous()  # 7 samples: the last batch is not full
loader = torch.utils.data.DataLoader(data, batch_size=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)


def train():
    losses, seen = [], []
    for batch in loader:
        with accelerator.accumulate(model):
            loss = (model(batch) - batch).pow(2).mean()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())
        seen += accelerator.gather_for_metrics(batch)[:, 0].tolist()
    assert seen == list(range(7))
    return losses


folders = [tempfile.mkdtemp() if accelerator.is_main_process else None]
dist.broadcast_object_list(folders)
train()
accelerator.save_state(folders[0])
later = train()
assert train() != later
accelerator.load_state(folders[0])
assert train() == later
weight = accelerator.unwrap_model(model).weight
everywhere = accelerator.gather(weight.detach()[None])
assert (everywhere == weight).all().item()
accelerator.save_model(model, folders[0] + "/model")
accelerator.wait_for_everyone()
saved = safetensors.torch.load_file(folders[0] + "/model/model.safetensors")
assert torch.equal(saved["weight"], weight.detach().cpu())
accelerator.end_training()

adapter.uninstall()
assert "USE_TORCH_XLA" not in os.environ and "ACCELERATE_TORCH_DEVICE" not in os.environ
for now in (PartialState.__init__, Accelerator.get_state_dict, safetensors.torch.storage_ptr):
    assert now.__code__.co_name != "replacement"
