"""A process of test_accelerate: its own way to XLA devices, ranks being threads."""

from __future__ import annotations

import os

os.environ["TORCH_XLA_CC_FALLBACK"] = "allow"

import torch
import torch_xla
from accelerate import Accelerator

import torch_xla_cc

torch_xla_cc.install()
RANKS, STEPS = 2, 3


def model_and_optimizer():
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Linear(4, 4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def losses_of(model, ranks, device):
    inputs = (torch.full((2, 4), float(rank), device=device) for rank in ranks)
    return [(model(x) - x).pow(2).mean() for x in inputs]


def main(rank):
    accelerator = Accelerator()
    assert accelerator.distributed_type == "XLA"
    assert accelerator.num_processes == RANKS
    model, optimizer = accelerator.prepare(*model_and_optimizer())
    losses = []
    for _ in range(STEPS):
        (loss,) = losses_of(model, [accelerator.process_index], accelerator.device)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        torch_xla.sync()
        losses.append(accelerator.gather(loss.detach()).tolist())
    return losses


def alone():
    """The same on the host, by one rank with the data of all."""
    model, optimizer = model_and_optimizer()
    losses = []
    for _ in range(STEPS):
        parts = losses_of(model, range(RANKS), "cpu")
        torch.stack(parts).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append([part.item() for part in parts])
    return losses


if __name__ == "__main__":
    expected = torch.tensor(alone())
    for found in torch_xla_cc.launch(main, nprocs=RANKS):
        torch.testing.assert_close(torch.tensor(found), expected)
