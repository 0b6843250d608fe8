"""torch.optim on DTensors of XLA devices against the CPU: a program for torchrun, with 4 ranks."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from unittest import mock

import torch
from torch import nn, optim
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._dispatch import OpDispatcher
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "examples/clients"))
from common import Run

from torch_xla_cc.adapters import dtensor, fsdp

run = Run("optimizers of DTensors")
dtensor.install()
fsdp.install()
line = init_device_mesh("xla", (4,))
square = init_device_mesh("xla", (2, 2))
named = init_device_mesh("xla", (2, 2), mesh_dim_names=("dp", "tp"))
# Rows that do not divide, fewer than ranks, one for all, a number, two dimensions, and no DTensor.
PLACES = (
    ((7, 5), line, [Shard(0)]),
    ((2, 3), line, [Shard(0)]),
    ((4,), line, [Replicate()]),
    ((), line, [Replicate()]),
    ((5, 6), square, [Shard(1), Shard(0)]),
    ((3, 2), None, None),
)
STEPS = 3
NUMBERS = ("step", "mu_product", "mu", "eta")
EACH = {
    "sgd": lambda xs: optim.SGD(xs, lr=0.1),
    "momentum": lambda xs: optim.SGD(xs, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.1),
    "nesterov": lambda xs: optim.SGD(xs, lr=0.1, momentum=0.9, nesterov=True, maximize=True),
    "foreach": lambda xs: optim.SGD(xs, lr=0.1, momentum=0.9, foreach=True),
    "adam": lambda xs: optim.Adam(xs, weight_decay=0.1, amsgrad=True),
    "adam, a tensor": lambda xs: optim.Adam(xs, lr=torch.tensor(0.01)),
    "adam, foreach": lambda xs: optim.Adam(xs, foreach=True),
    "adamw": lambda xs: optim.AdamW(xs, maximize=True),
    "adagrad": lambda xs: optim.Adagrad(xs, lr_decay=0.1, initial_accumulator_value=0.1),
    "adadelta": lambda xs: optim.Adadelta(xs),
    "adamax": lambda xs: optim.Adamax(xs),
    "nadam": lambda xs: optim.NAdam(xs),
    "radam": lambda xs: optim.RAdam(xs),
    "asgd": lambda xs: optim.ASGD(xs),
    "rprop": lambda xs: optim.Rprop(xs),
    "rmsprop": lambda xs: optim.RMSprop(xs, momentum=0.9, centered=True),
}


def spread(x, mesh, placements):
    x = x.to(run.device)
    return x if mesh is None else distribute_tensor(x, mesh, placements)


def same(found, expected):
    found = found.full_tensor() if isinstance(found, DTensor) else found
    torch.testing.assert_close(found.cpu(), expected)


def values():
    return [torch.randn(shape) for shape, *_ in PLACES]


def summed(x, mesh):
    """A gradient whose sum is yet to be made."""
    own = x.to(run.device) if mesh.get_rank() == 0 else torch.zeros_like(x, device=run.device)
    return DTensor.from_local(own, mesh, [Partial()] * mesh.ndim)


def trained(name, gradients="alike"):
    """Both train alike; in the last step no operator of a step goes through DTensor."""
    torch.manual_seed(0)
    whole = [nn.Parameter(x) for x in values()]
    parts = [
        nn.Parameter(spread(x.detach(), *place))
        for x, (_, *place) in zip(whole, PLACES, strict=True)
    ]
    expected, found = EACH[name](whole), EACH[name](parts)
    for step in range(STEPS):
        for x, y, (_, *place) in zip(whole, parts, PLACES, strict=True):
            x.grad = torch.randn(x.shape)
            mesh, placements = place
            if mesh is not None and gradients == "whole":
                placements = [Replicate()] * mesh.ndim
            if mesh is not None and gradients == "sums":
                y.grad = summed(x.grad, mesh)
            else:
                y.grad = spread(x.grad, mesh, placements)
        expected.step()
        versions = [y._version for y in parts if isinstance(y, DTensor)]
        with mock.patch.object(OpDispatcher, "dispatch", autospec=True) as dispatch:
            dispatch.side_effect = DISPATCH
            found.step()
        written = [y._version for y in parts if isinstance(y, DTensor)]
        assert all(new > old for new, old in zip(written, versions, strict=True)), name
        if step == STEPS - 1:
            assert not dispatch.call_count, (name, dispatch.call_args_list)
        for x, y in zip(whole, parts, strict=True):
            same(y, x.detach())
            for key, of_x in expected.state[x].items():
                of_y = found.state[y][key]
                if key in NUMBERS or not isinstance(of_x, torch.Tensor):
                    assert of_x is of_y or float(of_y) == float(of_x), (name, key)
                    continue
                assert isinstance(of_y, DTensor) is isinstance(y, DTensor), (name, key)
                if isinstance(y, DTensor):
                    assert of_y.placements == y.placements
                    assert (of_y.shape, of_y.stride()) == (y.shape, y.stride())
                same(of_y, of_x)


def resumed():
    """Some parameters have no gradient; states are saved, and loaded by another optimizer."""
    torch.manual_seed(1)
    xs = values()
    whole = [nn.Parameter(x.clone()) for x in xs]
    parts = [nn.Parameter(spread(x, *place)) for x, (_, *place) in zip(xs, PLACES, strict=True)]
    expected, found = (optim.AdamW(each, lr=0.1, amsgrad=True) for each in (whole, parts))
    for step in range(4):
        if step == 2:
            expected.load_state_dict(expected.state_dict())
            state = found.state_dict()
            found = optim.AdamW(parts, lr=0.1, amsgrad=True)
            found.load_state_dict(state)
        for i, (x, y, (_, *place)) in enumerate(zip(whole, parts, PLACES, strict=True)):
            x.grad = y.grad = None
            if (i + step) % 3:
                x.grad = torch.randn(x.shape)
                y.grad = spread(x.grad, *place)
        expected.step()
        found.step()
        for x, y in zip(whole, parts, strict=True):
            same(y, x.detach())


def tensor_parallel_and_fully_sharded():
    """Whose placements are subclasses of Shard."""
    torch.manual_seed(2)
    whole = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 6))
    model = copy.deepcopy(whole).to(run.device)
    plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}
    parallelize_module(model, named["tp"], plan)
    for part in (*model, model):
        fully_shard(part, mesh=named["dp"])
    expected = optim.Adam(whole.parameters(), lr=0.1)
    found = optim.Adam(model.parameters(), lr=0.1)
    for step in range(STEPS):
        x = torch.randn(4, 6)
        whole(x).square().sum().backward()
        model(x.to(run.device)).square().sum().backward()
        expected.step()
        with mock.patch.object(OpDispatcher, "dispatch", autospec=True) as dispatch:
            dispatch.side_effect = DISPATCH
            found.step()
        assert step == 0 or not dispatch.call_count, dispatch.call_args_list
        expected.zero_grad()
        found.zero_grad()
    for x, y in zip(whole.parameters(), model.parameters(), strict=True):
        same(y, x.detach())


def autograd_is_asked():
    x = nn.Parameter(spread(torch.ones(7, 5), line, [Shard(0)]))
    options = {"weight_decay": 0, "momentum": 0, "lr": 0.1, "dampening": 0, "nesterov": False}
    try:
        sys.modules["torch.optim.sgd"].sgd(
            [x], [x.detach().clone()], [None], maximize=False, **options
        )
    except RuntimeError as error:
        assert "leaf" in str(error), error
    else:
        raise AssertionError("not refused")


def written_between_forward_and_backward():
    """Is still refused: a step that comes before the gradients of another."""
    x = nn.Parameter(spread(torch.ones(7, 5), line, [Shard(0)]))
    optimizer = optim.SGD([x], lr=0.1)
    y = (x * x).sum()
    x.grad = x.detach().clone()
    optimizer.step()
    try:
        y.backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
    else:
        raise AssertionError("not refused")


DISPATCH = OpDispatcher.dispatch
for name in EACH:
    trained(name)
for gradients in "whole", "sums":
    for name in "adamw", "adam, foreach", "nesterov", "asgd":
        trained(name, gradients)
resumed()
tensor_parallel_and_fully_sharded()
autograd_is_asked()
written_between_forward_and_backward()
adam = sys.modules["torch.optim.adam"].adam
fsdp.uninstall()
dtensor.uninstall()
assert sys.modules["torch.optim.adam"].adam is not adam
print("all equal")
