"""What FSDP1 has gathered is freed after use, and comes back. Run by torchrun."""

import itertools

import torch
import torch.distributed as dist
import torch_xla
from torch import nn
from torch.distributed.fsdp import (
    CPUOffload,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardingStrategy,
)

import torch_xla_cc
from torch_xla_cc.adapters import fsdp1, optimizers

torch_xla_cc.install()
optimizers.install()
fsdp1.install()
dist.init_process_group("xla_cc")
device, rank = torch_xla.device(), dist.get_rank()
summon = FullyShardedDataParallel.summon_full_params


class Passing(nn.Linear):
    """Gives its input on as well: gradients pass through, and may be none of its parameters."""

    def forward(self, x):
        return x * 1, super().forward(x)


class Net(nn.Module):
    """Three layers, and one of whose parameters the loss does not need."""

    def __init__(self, **options):
        super().__init__()
        self.layers = nn.Sequential(
            *(FullyShardedDataParallel(nn.Linear(5, 5), **options) for _ in range(3))
        )
        self.unused = FullyShardedDataParallel(Passing(5, 5), **options)

    def forward(self, x):
        return self.unused(self.layers(x))


def build(strategy, orig, **options):
    # Ranks begin with different values, and have those of rank 0.
    torch.manual_seed(rank)
    options.update(sharding_strategy=strategy, use_orig_params=orig, device_id=device)
    options.update(sync_module_states=True)
    # (The layers are on the CPU; device_id moves them.)
    return FullyShardedDataParallel(Net(**options), **options)


def kept(layer):
    """The devices of what is gathered, and of the views of it that the layer has."""
    own = layer._handle.flat_param
    tensors = [own._full_param_padded, *(own._tensors or ())]
    if not layer._use_orig_params:
        tensors += [layer.module.weight, layer.module.bias]
    found = {torch._from_functional_tensor(x).device.type for x in tensors if x is not None}
    assert len(found) == 1
    return found.pop()


def whole(model):
    with summon(model):
        return {name: x.detach().cpu().clone() for name, x in model.named_parameters()}


def same_on_all(values):
    for x in values.values():
        first = x.to(device)
        dist.broadcast(first, 0)
        assert torch.equal(first.cpu(), x)


for strategy, orig in itertools.product(
    (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP), (False, True)
):
    model = build(strategy, orig)
    assert {x.device for x in model.parameters()} == {device}
    layers = [*model.module.layers, model.module.unused]
    same_on_all(whole(model))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        x, _ = model(torch.randn(6, 5).to(device))
        after_forward = "meta" if strategy == ShardingStrategy.FULL_SHARD else "xla"
        assert [kept(layer) for layer in layers] == [after_forward] * 4
        x.square().mean().backward()
        assert [kept(layer) for layer in layers] == ["meta"] * 4
        optimizer.step()
        optimizer.zero_grad()
    same_on_all(whole(model))
    assert [kept(layer) for layer in layers] == ["meta"] * 4

# Parameters of low precision that are still there when whole ones are asked for are not kept.
for orig in (False, True):
    half = MixedPrecision(param_dtype=torch.bfloat16)
    model = build(ShardingStrategy.SHARD_GRAD_OP, orig, mixed_precision=half)
    x = torch.ones(2, 5).to(device)
    with torch.no_grad():
        before = model(x)[0].float().cpu()
        with summon(model):
            for parameter in model.parameters():
                assert parameter.dtype == torch.float32
                parameter.zero_()
        assert before.abs().max() > 0 and model(x)[0].abs().max().item() == 0
    model(x)[0].sum().backward()

try:
    build(ShardingStrategy.FULL_SHARD, False, cpu_offload=CPUOffload(offload_params=True))
except NotImplementedError as error:
    assert "Leave cpu_offload out" in str(error)
else:
    raise AssertionError("offloaded parameters were taken")
if rank == 0:
    print("all freed")
dist.destroy_process_group()
