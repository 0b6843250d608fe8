"""Operators of DTensors that torch_xla, or a formula of gradients, takes another way than the CPU.

Each was found by random programs: test_random_layers.py.
"""

import pickle

import forks
import processes
import pytest
import random_layers as layers
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

pytestmark = pytest.mark.usefixtures("leaves_ranks")


def of_xla(rank, name):
    """The value and the gradient."""
    layers.world()
    mesh = layers.mesh("xla", (2,))
    x = distribute_tensor(layers.numbers(3, 5, 4).to("xla"), mesh, [Shard(0)]).requires_grad_()
    y = OPERATORS[name](x)
    y.sum().backward()
    return [one.full_tensor().detach().cpu() for one in (y, x.grad)]


def _zero(x):
    return torch.zeros((), dtype=x.dtype, device=x.device)


OPERATORS = {
    # A number in `where`, also of gradients, is a tensor of the device and no DTensor.
    "where": lambda x: torch.where(x > 0, x, 0.5),
    "where, the other": lambda x: torch.where(x > 0, 0.5, x),
    "where of two": lambda x: torch.where(x > 0, 0.5, 2.0) * x,
    "gradient of where": lambda x: torch.where(x > 0, x, x * x),
    # Of no named dimension torch reduces all, torch_xla none.
    "amax": lambda x: torch.amax(x),
    "amin": lambda x: x.amin(keepdim=True),
    "sum": lambda x: torch.sum(x, []),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "clip": lambda x: x.clip(max=0.25) * x,
    "clamp_min": lambda x: x.clamp_min(0.1) * x.clamp(0, None),
    "clamp_max": lambda x: x.clamp_max(1) + (x * x).clamp_min(0.5),
    # The formula of gradients makes a tensor of zero on the device.
    "torch.clamp": lambda x: torch.clamp(x, -0.5, 0.5),
    "torch.clip": lambda x: torch.clip(x, max=0.25) * x,
    "torch.clamp_min": lambda x: torch.clamp_min(x, 0.1) * torch.clamp(x, 0),
    "torch.clamp_max": lambda x: torch.clamp_max(x, 1),
    "clamp in place": lambda x: (x * 1).clamp_(-0.5, 0.5),
    "clamp by tensors": lambda x: torch.clamp(x, x - 1, x * 0.5),
    "clamp by one on the CPU": lambda x: torch.clamp(x, torch.tensor(0.5)),
    "clamp by two on the CPU": lambda x: x.clamp(torch.tensor(-0.5), torch.tensor(0.5)),
    "clamp in place by two on the CPU": lambda x: (x * 1).clamp_(
        torch.tensor(-0.5), torch.tensor(0.5)
    ),
    "clamp of integers by one of floats": lambda x: (x * 4).long().clamp(torch.tensor(0.5)) * x,
    "norm of the order that is left out": lambda x: torch.ops.aten.norm.Scalar(x.detach()) * x,
    "clamp_max on the CPU": lambda x: torch.clamp_max(x, torch.tensor(0.5)),
    "where of a number of the device": lambda x: torch.where(x > 0, x, _zero(x)),
    "torch.norm": lambda x: torch.norm(x, 1, 0, True) * torch.norm(x, 1),
    "torch.norm, the largest": lambda x: torch.norm(x, float("inf")),
    "where on the CPU": lambda x: torch.where(x > 0, torch.tensor(0.5), x),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_is_as_of_plain_tensors(name):
    x = layers.numbers(3, 5, 4).requires_grad_()
    y = OPERATORS[name](x)
    y.sum().backward()
    for found in processes.run(2, of_xla, name):
        torch.testing.assert_close(found, [y.detach(), x.grad])


def whole(rank, name):
    layers.world()
    mesh = layers.mesh("xla", (2,))
    x = distribute_tensor(layers.numbers(3, 5, 4).to("xla"), mesh, [Replicate()])
    return REDUCTIONS[name](x).full_tensor().cpu()


# Of shards of several sizes PyTorch has other numbers, by gloo too.
REDUCTIONS = {
    "mean": lambda x: x.mean([], keepdim=True),
    "var": lambda x: x.var([]),
    "vector_norm": lambda x: torch.linalg.vector_norm(x, dim=[]),
    "vector_norm of one": lambda x: torch.linalg.vector_norm(x, dim=[1]),
    "norm": lambda x: x.norm(),
    "norm of a dimension": lambda x: x.norm(1, 0, True),
    "torch.norm": lambda x: torch.norm(x),
    "torch.norm of a dimension": lambda x: torch.norm(x, 3, 1),
    "torch.norm, the largest": lambda x: torch.norm(x, float("inf"), (0, 1)),
    "torch.norm of another type": lambda x: torch.norm(x, 3, dtype=torch.float64),
    "normalize": lambda x: torch.nn.functional.normalize(x),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    for found in processes.run(2, whole, name):
        torch.testing.assert_close(found, REDUCTIONS[name](layers.numbers(3, 5, 4)))


def of_plain_tensors(rank, name):
    layers.world()  # which installs the adapter
    x = layers.numbers(3, 5, 4).to("xla").requires_grad_()
    y = OPERATORS[name](x)
    y.sum().backward()
    return [one.detach().cpu() for one in (y, x.grad)]


@pytest.mark.parametrize("name", ["where", "gradient of where", "torch.clamp", "torch.norm"])
def test_plain_tensors_stay_as_they_are(name):
    x = layers.numbers(3, 5, 4).requires_grad_()
    y = OPERATORS[name](x)
    y.sum().backward()
    for found in processes.run(2, of_plain_tensors, name):
        torch.testing.assert_close(found, [y.detach(), x.grad])


def of_no_rows(rank):
    layers.world()
    mesh = layers.mesh("xla", (2,))
    x = distribute_tensor(torch.tensor([[1.0, 5.0, 6.0]]).to("xla"), mesh, [Shard(0)])
    scale = distribute_tensor(torch.tensor([1.0, 2.0, 4.0]).to("xla"), mesh, [Replicate()])
    x.requires_grad_()
    scale.requires_grad_()
    y = nn.functional.layer_norm(x, (3,), scale, None)
    (y * y).sum().backward()
    return [one.full_tensor().detach().cpu() for one in (y, x.grad, scale.grad)]


def test_layer_norm_of_a_rank_without_rows():
    x, scale = torch.tensor([[1.0, 5.0, 6.0]]), torch.tensor([1.0, 2.0, 4.0])
    x.requires_grad_()
    scale.requires_grad_()
    y = nn.functional.layer_norm(x, (3,), scale, None)
    (y * y).sum().backward()
    for found in processes.run(2, of_no_rows):
        torch.testing.assert_close(found, [y.detach(), x.grad, scale.grad], rtol=1e-4, atol=1e-4)


def ways_of_plain_tensors():
    """torch.clamp and torch.where, called in all ways that torch has."""
    x = layers.numbers(3, 4, 5).to("xla")

    def clamped(x):
        return torch.clamp(torch.where(x > 0, x, x * 2), -0.5, 0.5).sum()

    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(clamped(forward_ad.make_dual(x, torch.ones_like(x))))
        found = [*dual]
    with torch.inference_mode():
        found.append(clamped(x))
    found += [torch.func.grad(clamped)(x), torch.func.vmap(clamped)(x)]
    found += [torch.compile(clamped, backend="openxla")(x), torch.jit.script(clamped)(x.cpu())]
    assert pickle.loads(pickle.dumps(torch.clamp)) is torch.clamp
    return [one.cpu() for one in found]


@forks.alone
def test_ways_of_plain_tensors_stay_as_they_are():
    import torch_xla

    from torch_xla_cc.adapters import dtensor

    torch_xla.device()
    before = ways_of_plain_tensors()
    with dtensor.installed():
        within = ways_of_plain_tensors()
    torch.testing.assert_close(within, before, rtol=0, atol=0)
    torch.testing.assert_close(ways_of_plain_tensors(), before, rtol=0, atol=0)
