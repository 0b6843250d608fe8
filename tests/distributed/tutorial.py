"""The programs of PyTorch's tutorial "Writing Distributed Applications", on a given device.

Each is the tutorial's idea in its calls: blocking and non-blocking send and recv, groups, the
collectives, a ring all_reduce written by hand, and averaging the gradients of a model.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch_xla

import torch_xla_cc.distributed  # noqa: F401 (registers xla_cc)


def blocking(rank, device):
    tensor = torch.zeros(1, device=device)
    if rank == 0:
        tensor += 1
        dist.send(tensor=tensor, dst=1)
    elif rank == 1:
        dist.recv(tensor=tensor, src=0)
    return tensor.cpu()


def non_blocking(rank, device):
    tensor = torch.zeros(1, device=device)
    request = None
    if rank == 0:
        tensor += 1
        request = dist.isend(tensor=tensor, dst=1)
    elif rank == 1:
        request = dist.irecv(tensor=tensor, src=0)
    if request is not None:
        request.wait()
    return tensor.cpu()


def group_of_two(rank, device):
    group = dist.new_group([0, 1])
    tensor = torch.ones(1, device=device)
    if rank < 2:
        dist.all_reduce(tensor, op=dist.ReduceOp.SUM, group=group)
    return tensor.cpu()


def ring(rank, device):
    """All-reduce, by passing what came last to the right."""
    size = dist.get_world_size()
    send = torch.arange(6.0, device=device) * (rank + 1)
    total = send.clone()
    left, right = (rank - 1) % size, (rank + 1) % size
    for _ in range(size - 1):
        receive = torch.zeros_like(send)
        request = dist.isend(send, right)
        dist.recv(receive, left)
        request.wait()
        total += receive
        send = receive
    return total.cpu()


def gradients(rank, device):
    """Ten steps of a small model, whose gradients are averaged after each backward."""
    size = float(dist.get_world_size())
    torch.manual_seed(1234)
    weights = torch.randn(8, 3)
    data = torch.randn(int(size) * 16, 8)
    targets = torch.randint(0, 3, (int(size) * 16,))
    model = torch.nn.Linear(8, 3)
    with torch.no_grad():
        model.weight.copy_(weights.t())
        model.bias.zero_()
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    own = slice(rank * 16, rank * 16 + 16)
    x, y = data[own].to(device), targets[own].to(device)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad.data, op=dist.ReduceOp.SUM)
            parameter.grad.data /= size
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.detach())
    return torch.stack(losses).cpu()
