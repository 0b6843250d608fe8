"""Operators of DTensors that torch_xla, or a formula of gradients, takes another way than the CPU.

Each was found by random programs: test_random_layers.py.
"""

import processes
import pytest
import random_layers as layers
import torch
from torch.distributed.tensor import Shard, distribute_tensor

pytestmark = pytest.mark.usefixtures("leaves_ranks")


def of_xla(rank, name):
    """The value and the gradient."""
    layers.world()
    mesh = layers.mesh("xla", (2,))
    x = distribute_tensor(layers.numbers(3, 5, 4).to("xla"), mesh, [Shard(0)]).requires_grad_()
    y = OPERATORS[name](x)
    y.sum().backward()
    return [one.full_tensor().detach().cpu() for one in (y, x.grad)]


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
}


@pytest.mark.parametrize("name", OPERATORS)
def test_is_as_of_plain_tensors(name):
    x = layers.numbers(3, 5, 4).requires_grad_()
    y = OPERATORS[name](x)
    y.sum().backward()
    for found in processes.run(2, of_xla, name):
        torch.testing.assert_close(found, [y.detach(), x.grad])
