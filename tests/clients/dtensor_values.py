"""DTensors of XLA devices against tensors of the CPU: a program for torchrun, with four ranks."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "examples/clients"))
from common import Run

from torch_xla_cc.adapters import dtensor

run = Run("DTensors")
dtensor.install()
mesh = init_device_mesh("xla", (2, 2), mesh_dim_names=("dp", "tp"))
line = init_device_mesh("xla", (4,))
PLACEMENTS = (Shard(0), Shard(1), Replicate())


def same(x: DTensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(x.full_tensor().cpu(), expected)


def redistributions() -> None:
    x = torch.arange(64.0).reshape(8, 8)
    for source in itertools.product(PLACEMENTS, repeat=2):
        whole = distribute_tensor(x.to(run.device), mesh, source)
        for target in itertools.product(PLACEMENTS, repeat=2):
            same(whole.redistribute(placements=target), x)


def uneven() -> None:
    x = torch.arange(35.0).reshape(7, 5)
    for source, target in itertools.product(PLACEMENTS, repeat=2):
        whole = distribute_tensor(x.to(run.device), line, [source])
        same(whole.redistribute(placements=[target]), x)
        same(whole @ whole.T, x @ x.T)


def partial() -> None:
    x = torch.ones(3, device=run.device) * run.rank
    for kind, expected in {"sum": 6.0, "avg": 1.5, "max": 3.0, "min": 0.0}.items():
        same(DTensor.from_local(x, line, [Partial(kind)]), torch.full((3,), expected))
    scattered = DTensor.from_local(torch.ones(8, device=run.device), line, [Partial()])
    same(scattered.redistribute(placements=[Shard(0)]), torch.full((8,), 4.0))


def views() -> None:
    """What is written into a view is in the tensor."""
    x = distribute_tensor(torch.zeros(4, 6).to(run.device), line, [Shard(0)])
    x.t().add_(1)
    x.view(4, 2, 3)[:, 1].mul_(2)
    expected = torch.ones(4, 6)
    expected[:, 3:] = 2
    same(x, expected)


def norms() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 8, 6, requires_grad=True)
    norm = nn.LayerNorm(6)
    nn.init.normal_(norm.weight)
    norm(x).square().sum().backward()
    assert x.grad is not None
    for placements in ([Shard(0), Shard(1)], [Replicate(), Shard(1)], [Shard(2), Replicate()]):
        ours = nn.LayerNorm(6).to(run.device)
        ours.load_state_dict(norm.state_dict())
        distribute_module(ours, mesh)
        data = distribute_tensor(x.detach().to(run.device), mesh, placements).requires_grad_()
        y = ours(data)
        y.square().sum().backward()
        same(y, norm(x).detach())
        same(data.grad, x.grad)
        for name, parameter in ours.named_parameters():
            same(parameter.grad, norm.get_parameter(name).grad)


def attention() -> None:
    """Batches over one dimension of the mesh, heads over the other."""
    given = [torch.randn(2, 4, 6, 8, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    plain = [x.clone().requires_grad_() for x in given]
    split = [
        distribute_tensor(x.to(run.device), mesh, [Shard(0), Shard(1)]).requires_grad_()
        for x in given
    ]
    expected = nn.functional.scaled_dot_product_attention(*plain, is_causal=True)
    found = nn.functional.scaled_dot_product_attention(*split, is_causal=True)
    assert found.placements == (Shard(0), Shard(1))
    same(found, expected)
    expected.square().sum().backward()
    found.square().sum().backward()
    for x, y in zip(split, plain, strict=True):
        same(x.grad, y.grad)


def random() -> None:
    """Replicas draw the same, shards do not, and the next time is another."""
    torch.manual_seed(0)
    x = distribute_tensor(torch.ones(8, 8).to(run.device), mesh, [Shard(0), Replicate()])
    first, second = (nn.functional.dropout(x).to_local().tolist() for _ in range(2))
    drawn = [None] * 4
    dist.all_gather_object(drawn, first)
    assert drawn[0] == drawn[1] != drawn[2] == drawn[3]
    assert first != second


def mixed() -> None:
    """A DTensor and an XLA tensor: refused, and not something in between. Others are taken."""
    x = distribute_tensor(torch.ones(4).to(run.device), line, [Shard(0)])
    same(x * 2, torch.full((4,), 2.0))
    same(x * torch.tensor(2.0), torch.full((4,), 2.0))
    two = torch.tensor(2.0, device=run.device)
    for operation in (lambda: x * two, lambda: two * x, lambda: x.clone().mul_(two)):
        try:
            operation()
        except ValueError as error:
            assert "DTensor.from_local" in str(error)
        else:
            raise AssertionError("a DTensor and a tensor were taken")


def taken_out() -> None:
    """uninstall() leaves torch as it was."""
    dtensor.uninstall()
    assert not hasattr(torch, "xla")
    try:
        init_device_mesh("xla", (4,)).get_group()
    except Exception:  # torch's mesh of "xla" has no groups
        dtensor.install()
        same(distribute_tensor(torch.ones(4).to(run.device), line, [Shard(0)]), torch.ones(4))
        return
    raise AssertionError("uninstall() has left something")


for check in (redistributions, uneven, partial, views, norms, attention, random, mixed, taken_out):
    check()
    if run.rank == 0:
        print(check.__name__, flush=True)
if run.rank == 0:
    print("all equal")
run.end()
