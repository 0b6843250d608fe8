"""Models on ranks that have to run the same programs, of which some ranks do more than others."""

import warnings

import staying
import torch
import torch.distributed as dist
import torch_xla
from torch.distributed.nn.functional import all_reduce


class _Summed(torch.nn.Module):
    def forward(self, x):
        return x - all_reduce(x.mean(0)) / dist.get_world_size()


def micro_batch(rank, batch):
    """Of a rank."""
    return torch.linspace(-1.0, 1.0 + batch + rank, 24).view(4, 6)


def prints_micro_batches(rank, batches):
    """DDP of a model that calls, between whose calls a window ends: what is read, gradients."""
    with staying.world() as (device, _), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 4), _Summed(), torch.nn.Linear(4, 2))
        model = model.to(device)
        ddp = torch.nn.parallel.DistributedDataParallel(model)
        read = []
        for batch in range(batches):
            loss = ddp(micro_batch(rank, batch).to(device)).square().mean()
            loss.backward()
            if rank == 0:
                read.append(loss.item())
        return read, [x.grad.tolist() for x in model.parameters()]


class Branches(torch.nn.Module):
    """A model through which ranks may go other ways."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.branches = torch.nn.ModuleList([torch.nn.Linear(6, 2), torch.nn.Linear(6, 2)])

    def loss(self, rank, step):
        """Of some rank's data in a step."""
        x = torch.linspace(-1.0, 1.0 + rank, 24).view(4, 6).to(self.branches[0].weight.device)
        return self.branches[(rank + step) % 2](x).square().mean()

    forward = loss


def uses_branches(rank, steps, syncs):
    """DistributedDataParallel, where ranks go other ways through the model: its parameters."""
    with staying.world() as (device, _):
        model = Branches().to(device)
        ddp = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
        for step in range(steps):
            optimizer.zero_grad()
            ddp(rank, step).backward()
            optimizer.step()
            if syncs:
                torch_xla.sync()
        return [x.tolist() for x in model.parameters()]
