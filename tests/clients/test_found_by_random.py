"""What random clients found: each fault in a few lines, against gloo in the same processes."""

import contextlib
import os

import forks
import processes
import pytest
import random_clients
import torch
import torch.distributed as dist
from torch import nn


def _both(train, *adapters):
    """What `train(kind)` gives on XLA and by gloo on the CPU, in one world."""
    import torch_xla

    torch_xla.device()
    rank, size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    # Of a name of its own in the store: gloo could find the addresses of a world before.
    with random_clients.world(rank, size, train.__qualname__), contextlib.ExitStack() as stack:
        for adapter in adapters:
            stack.enter_context(adapter.installed())
        return {kind: train(kind) for kind in ("xla", "cpu")}


def _sharded(kind, *layers, **options):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = nn.Sequential(*(make() for make in layers)).to(kind)
    mesh = init_device_mesh(kind, (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    return model


def _fed(kind):
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(dist.get_rank()))
    return x.to(kind)


def _gradients(model):
    return [x.grad.full_tensor().cpu() for x in model.parameters() if x.grad is not None]


def _same(by_rank):
    for found in by_rank:
        assert found["cpu"] and any(x.abs().sum() > 0 for x in found["cpu"])
        torch.testing.assert_close(found["xla"], found["cpu"], rtol=1e-4, atol=1e-6)


def one_rank_of_fsdp2(rank):
    from torch_xla_cc.adapters import fsdp

    def train(kind):
        model = _sharded(kind, lambda: nn.Linear(5, 4), lambda: nn.Linear(4, 3))
        for _ in range(2):  # the first pass allocates, later ones allocate again
            model(_fed(kind)).square().sum().backward()
        return _gradients(model)

    return _both(train, fsdp)


def test_fsdp2_of_one_rank():
    """Its whole parameters are copied from the shards, past the functions that were replaced."""
    _same(processes.run(1, one_rank_of_fsdp2))


def clipped(rank):
    from torch_xla_cc.adapters import fsdp

    def train(kind):
        model = _sharded(kind, lambda: nn.Linear(5, 4), lambda: nn.Linear(4, 3))
        model(_fed(kind)).square().sum().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        return [*_gradients(model), norm.full_tensor().cpu()]

    return _both(train, fsdp)


def test_gradients_of_fsdp2_are_clipped():
    """torch_xla's clip_grad_norm_ mixes DTensors with tensors."""
    _same(processes.run(2, clipped))


def gathered_in_vain(rank):
    from torch_xla_cc.adapters import fsdp

    def train(kind):
        model = _sharded(kind, *[lambda: nn.Linear(5, 5)] * 2)
        x = _fed(kind)
        # A layer is gathered in advance, and no backward pass comes to it.
        model[0].requires_grad_(False)
        model[1].set_modules_to_backward_prefetch([model[0]])
        model(x).square().sum().backward()
        return _gradients(model)

    return _both(train, fsdp)


def test_what_was_gathered_in_vain():
    """FSDP2 has the stream of torch.accelerator wait for it: CUDA's."""
    _same(processes.run(2, gathered_in_vain))


def computed_again(rank, client):
    os.environ["DS_ACCELERATOR"] = "cpu"
    if client == "accelerate":
        from torch_xla_cc.adapters import accelerate as adapter
    else:
        from torch_xla_cc.adapters import deepspeed as adapter
    from torch.utils.checkpoint import checkpoint

    def train(kind):
        torch.manual_seed(0)
        layer, x = nn.Linear(5, 4).to(kind), _fed(kind)
        checkpoint(layer, x, use_reentrant=False).square().sum().backward()
        return [layer.weight.grad.cpu()]

    return _both(train, adapter)


@pytest.mark.parametrize("client", ["accelerate", "deepspeed"])
def test_layers_are_computed_again(client):
    """torch.utils.checkpoint asks for torch.xla, also where nobody installs DTensor's adapter."""
    with processes.Processes(1) as ranks:
        _same(ranks.run(computed_again, client))


@forks.alone
def test_stock_takes_no_backward_pass_on_xla_after_one_on_the_cpu():
    """Of torch_xla itself, as docs/clients/README.md says: the first device comes before."""
    import torch_xla

    torch.ones(2, requires_grad=True).sum().backward()
    y = torch.ones(2, device=torch_xla.device()).requires_grad_()
    with pytest.raises(RuntimeError, match="device_ready_queues"):
        y.sum().backward()


@forks.alone
def test_stock_loses_gradients_of_a_norm_of_nothing():
    """Of torch_xla itself, as docs/clients/README.md says."""
    import torch_xla

    norm = nn.LayerNorm(3).to(torch_xla.device())
    assert not norm(torch.zeros(0, 3, device=torch_xla.device())).requires_grad


@forks.alone
def test_stock_shares_a_buffer_that_it_gives_away():
    """Of torch_xla itself, as docs/clients/README.md says."""
    import torch_xla

    a, b = torch.arange(4.0).to(torch_xla.device()), torch.zeros(4).to(torch_xla.device())
    torch_xla.sync()
    b.copy_(a)
    torch_xla.sync(wait=True)
    b.add_(1)
    torch_xla.sync(wait=True)
    with pytest.raises(RuntimeError, match="is deleted"):
        (a + 0).tolist()


def consolidates(rank, with_adapter=True):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    from torch_xla_cc.adapters import optimizers

    def train(kind):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)).to(kind)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            model(_fed(kind)).square().sum().backward()
            optimizer.step()
        optimizer.consolidate_state_dict(to=1)
        if rank == 0:
            return []
        state = optimizer.state_dict()["state"]
        return [
            state[i][name].cpu() for i in range(4) for name in ("step", "exp_avg", "exp_avg_sq")
        ]

    return _both(train, *([optimizers] if with_adapter else []))


def test_zero_is_consolidated():
    sender, receiver = processes.run(2, consolidates)
    assert sender == {"xla": [], "cpu": []}
    _same([receiver])


def test_stock_cannot_consolidate_without_the_adapter():
    """As docs/clients/zero_redundancy_optimizer.md says; who sends may then wait for the others."""
    with processes.Processes(2) as ranks:
        _, ((error, _), _) = ranks.outcomes(consolidates, False)
    assert "don't know how to restore data location" in str(error)


def loads(rank, which):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    from torch_xla_cc.adapters import optimizers

    def train(kind):
        number = nn.Parameter(torch.tensor(2.0, device=kind))
        vector = nn.Parameter(torch.tensor([1.0, 3.0], device=kind))

        def make():
            options = {"momentum": 0.9} if which is torch.optim.SGD else {}
            return ZeroRedundancyOptimizer([number, vector], which, lr=0.1, foreach=True, **options)

        def step(optimizer):
            optimizer.zero_grad()
            (number * vector).square().sum().backward()
            optimizer.step()

        optimizer = make()
        step(optimizer)
        optimizer.consolidate_state_dict()
        state = optimizer.state_dict()
        optimizer = make()
        optimizer.load_state_dict(state)
        read = [one.get("mu_product", one.get("step")) for one in optimizer.optim.state.values()]
        assert all(one is None or one.device.type == "cpu" for one in read)
        step(optimizer)
        return [number.detach().cpu(), vector.detach().cpu()]

    return _both(train, optimizers)


@pytest.mark.parametrize("which", [torch.optim.SGD, torch.optim.NAdam])
def test_zero_loads_states_of_a_number(which):
    """torch leaves it on the CPU, and foreach operators of XLA and CPU tensors end the process.

    What NAdam reads in each step stays there.
    """
    with processes.Processes(1) as ranks:
        _same(ranks.run(loads, which))
