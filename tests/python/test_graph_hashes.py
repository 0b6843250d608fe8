"""What docs/guide.md says of torch_xla's hashes: if this fails, it has been mended there."""

import torch
import torch_xla
import worlds


def _products(rank, ends_step):
    a, b = torch.tensor([2.0, 3.0]), torch.tensor([5.0, 7.0])
    x, y = a.to("xla"), b.to("xla")
    torch_xla.sync()
    total = x + y
    p, q = x * total, y * total
    if ends_step:
        torch_xla.sync()
    return p.tolist(), q.tolist(), (a * (a + b)).tolist(), (b * (a + b)).tolist()


def _steps(rank):
    """The second of two steps, and of two compiled functions, each with what is right."""
    a, b = torch.tensor([2.0, 3.0]), torch.tensor([5.0, 7.0])
    x, y = a.to("xla"), b.to("xla")
    torch_xla.sync()
    p = x * (x - y)
    torch_xla.sync()
    q = y * (x - y)
    torch_xla.sync()
    first = torch.compile(lambda x, y: x * (x / y), backend="openxla")
    second = torch.compile(lambda x, y: y * (x / y), backend="openxla")
    first(x, y).tolist()
    return (p.tolist(), q.tolist(), (b * (a - b)).tolist()), (second(x, y).tolist(), b * (a / b))


def test_steps_of_one_structure_and_compiled_functions():
    with worlds.World(1) as world:
        for (_, q, right), (compiled, right_too) in world.run(_steps):
            assert q != right  # wrong
            assert not torch.allclose(torch.tensor(compiled), right_too)  # wrong


def test_which_input_is_meant_is_not_in_the_hash():
    with worlds.World(1) as world:
        for p, q, first, _ in world.run(_products, False):
            assert p == first
            assert q == first  # wrong
        for p, q, first, second in world.run(_products, True):
            assert (p, q) == (first, second)
