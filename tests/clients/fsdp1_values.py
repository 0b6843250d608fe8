"""FullyShardedDataParallel on XLA devices against the same on the CPU, in the same processes.

Run by torchrun. No width divides by the number of ranks, and each layer has a weight twice.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    LocalStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictType,
)
from torch.distributed.tensor import DTensor

sys.path.insert(0, str(Path(__file__).parents[2] / "examples/clients"))
from common import Run

from torch_xla_cc.adapters import fsdp1

run = Run("FSDP1")
fsdp1.install()
warnings.simplefilter("ignore")
CPU, XLA = torch.device("cpu"), run.device
STRATEGIES = (
    ShardingStrategy.FULL_SHARD,
    ShardingStrategy.SHARD_GRAD_OP,
    ShardingStrategy.NO_SHARD,
)


class Layer(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.norm = nn.LayerNorm(outputs)
        self.mix, self.back = nn.Linear(outputs, outputs), nn.Linear(outputs, outputs)
        self.back.weight = self.mix.weight
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return torch.tanh(self.norm(self.back(self.mix(self.linear(x)))))


def build(device: torch.device, seed: int = 0, **options: object) -> FullyShardedDataParallel:
    torch.manual_seed(seed)
    net = nn.Sequential(Layer(7, 13), Layer(13, 5), nn.Linear(5, 3))
    options = {"device_id": device, **options}
    for i in range(2):
        net[i] = FullyShardedDataParallel(net[i], **options)
    return FullyShardedDataParallel(net, **options)


def train(model: FullyShardedDataParallel, device: torch.device, steps: int = 3) -> list[float]:
    """Losses and norms, and the optimizer. A batch of each step is not reduced on its own."""
    found = []
    model.optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    for step in range(steps):
        model.optimizer.zero_grad()
        for part in range(2):
            generator = torch.Generator().manual_seed(step * 100 + part * 10 + run.rank)
            x = torch.randn(6, 7, generator=generator).to(device)
            with model.no_sync() if part == 0 else contextlib.nullcontext():
                loss = model(x).square().mean()
                loss.backward()
        norm = model.clip_grad_norm_(0.1)
        model.optimizer.step()
        found += [loss.item(), norm.item()]
    return found


def close(found: object, expected: object, **limits: float) -> None:
    """Equal, whatever they are made of."""
    if isinstance(expected, dict):
        assert isinstance(found, dict)
        assert set(found) == set(expected), (list(found), list(expected))
        for key in expected:
            close(found[key], expected[key], **limits)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            close(one, other, **limits)
    elif hasattr(expected, "local_shards"):  # ShardedTensor
        ours, theirs = found.local_shards(), expected.local_shards()
        assert [x.metadata.shard_offsets for x in ours] == [
            x.metadata.shard_offsets for x in theirs
        ]
        assert found.size() == expected.size()
        close([x.tensor for x in ours], [x.tensor for x in theirs], **limits)
    elif isinstance(expected, DTensor):
        assert found.placements == expected.placements and found.shape == expected.shape
        close(found.to_local(), expected.to_local(), **limits)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found.detach().cpu(), expected.detach(), **limits)
    else:
        assert found == expected, (found, expected)


Models = Sequence[FullyShardedDataParallel]
Make = Callable[[], FullyShardedDataParallel]
LIMITS = {"rtol": 1e-4, "atol": 1e-5}


def full(model: FullyShardedDataParallel, *, grads: bool) -> dict[str, torch.Tensor | None]:
    """Copies of the whole parameters, or gradients."""
    with FullyShardedDataParallel.summon_full_params(model, with_grads=grads):
        return {
            name: (x.grad if grads else x).detach().clone() for name, x in model.named_parameters()
        }


def states(
    kind: StateDictType, config: object, optim: object, models: Models, make: Make | None = None
) -> None:
    """A state dict of both, and one loaded into another model; and those of optimizers."""
    saved, of_optimizers = [], []
    for model in models:  # the last one is for what torch has of optimizers
        own = dict(vars(config))
        if model.compute_device.type == "cpu":
            own["offload_to_cpu"] = False  # as in written()
        with FullyShardedDataParallel.state_dict_type(model, kind, type(config)(**own), optim):
            saved.append(model.state_dict())
            if kind != StateDictType.LOCAL_STATE_DICT:
                of_optimizers.append(
                    FullyShardedDataParallel.optim_state_dict(model, model.optimizer)
                )
    close(*saved[:2], **LIMITS)
    if of_optimizers:
        ours, *_, expected = (x.get("state") for x in of_optimizers)  # none, of other ranks
        close(ours, expected, **LIMITS)
    if not make:
        return
    other = make()
    train(other, XLA, steps=1)
    with FullyShardedDataParallel.state_dict_type(other, kind, config, optim):
        other.load_state_dict(saved[0])
        if of_optimizers:
            for_ours = FullyShardedDataParallel.optim_state_dict_to_load(
                other, other.optimizer, of_optimizers[0]
            )
            other.optimizer.load_state_dict(for_ours)
    close(full(other, grads=False), full(models[1], grads=False), **LIMITS)
    if of_optimizers:
        ours, expected = (x.optimizer.state_dict()["state"] for x in (other, models[1]))
        close(ours, expected, **LIMITS)


def everything(strategy: ShardingStrategy, orig: bool, mesh: bool = False) -> None:
    options = {"sharding_strategy": strategy, "use_orig_params": orig}

    def make(device: torch.device, **options: object) -> FullyShardedDataParallel:
        if mesh:
            options["device_mesh"] = init_device_mesh(device.type, (run.world_size,))
        return build(device, **options)

    ours, theirs = make(XLA, **options), make(CPU, **options)
    close(full(ours, grads=False), full(theirs, grads=False), rtol=0, atol=0)
    close(torch.tensor(train(ours, XLA)), torch.tensor(train(theirs, CPU)), **LIMITS)
    close(full(ours, grads=False), full(theirs, grads=False), **LIMITS)
    gradients = [[x.grad for x in model.parameters()] for model in (ours, theirs)]
    close(*gradients, **LIMITS)
    if orig:
        close(full(ours, grads=True), full(theirs, grads=True), **LIMITS)
    written(ours, theirs)
    models = [ours, theirs]
    if orig and strategy != ShardingStrategy.NO_SHARD:
        # On the CPU torch gathers all states of original parameters in the same memory.
        models.append(make(CPU, sharding_strategy=strategy))
        train(models[2], CPU)
    state_dicts(strategy, models, lambda: make(XLA, seed=1, **options))
    if strategy != ShardingStrategy.NO_SHARD and not orig and not mesh:
        local = StateDictType.LOCAL_STATE_DICT
        states(local, LocalStateDictConfig(), None, models, lambda: make(XLA, seed=1, **options))


def state_dicts(strategy: ShardingStrategy, models: Models, make: Make) -> None:
    whole, sharded = StateDictType.FULL_STATE_DICT, StateDictType.SHARDED_STATE_DICT
    states(whole, FullStateDictConfig(), FullOptimStateDictConfig(), models, make)
    if strategy == ShardingStrategy.NO_SHARD:
        return  # torch gives full ones
    on_rank_0 = {"offload_to_cpu": True, "rank0_only": True}
    of_optimizer = FullOptimStateDictConfig(**on_rank_0)
    states(whole, FullStateDictConfig(**on_rank_0), of_optimizer, models)
    states(whole, FullStateDictConfig(offload_to_cpu=True), None, models)
    states(sharded, ShardedStateDictConfig(), None, models, make)
    states(sharded, ShardedStateDictConfig(offload_to_cpu=True), None, models)


def written(*models: FullyShardedDataParallel) -> None:
    """What is written to whole parameters stays, but for writeback=False; on the CPU too."""
    summon = FullyShardedDataParallel.summon_full_params
    before = full(models[1], grads=False)
    for model in models:
        sharded = model.sharding_strategy != ShardingStrategy.NO_SHARD
        # torch frees what it offloads, and from the CPU to the CPU that is the same storage.
        offload = sharded and model.compute_device.type == "xla"
        with torch.no_grad():
            if sharded:
                with summon(model, writeback=False):
                    for x in model.parameters():
                        x.zero_()
            with summon(model, offload_to_cpu=offload):
                for x in model.parameters():
                    assert x.device.type == ("cpu" if offload else model.compute_device.type)
                    x.mul_(2)
            if offload:
                with summon(model, offload_to_cpu=True, rank0_only=True, writeback=False):
                    sizes = [x.numel() for x in model.parameters()]
                    assert run.rank != 0 or sum(sizes) == sum(x.numel() for x in before.values())
    close(full(models[0], grads=False), {k: v * 2 for k, v in before.items()}, **LIMITS)
    close(full(models[0], grads=False), full(models[1], grads=False), **LIMITS)


for strategy, orig in itertools.product(STRATEGIES, (False, True)):
    everything(strategy, orig)
    if run.rank == 0:
        print(strategy, "orig" if orig else "flat", flush=True)
everything(ShardingStrategy.FULL_SHARD, orig=False, mesh=True)  # sharded ones are of DTensors
if run.rank == 0:
    print("all equal")
run.end()
