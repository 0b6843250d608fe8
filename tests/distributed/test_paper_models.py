"""Models that are built in a dry-run world, and the collectives of a step of each.

What constructors send through the group, before a step is traced, comes back as if all ranks had
passed what this one did.
"""

import json
from collections import Counter
from pathlib import Path

import forks
import pytest
import torch
import torch_xla
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Shard, distribute_tensor

import torch_xla_cc
from torch_xla_cc._inspect import trace
from torch_xla_cc.adapters import dtensor, fsdp, fsdp1, optimizers
from torch_xla_cc.distributed import paper_world

WORLDS = [(0, 8, "tpu:v5e:2x4"), (5, 8, "tpu:v5e:2x4"), (2, 3, "cpu")]
WIDTH = 48  # which three and eight divide


@pytest.fixture(params=WORLDS, ids=lambda world: f"{world[0]} of {world[1]}")
def world(request):
    rank, size, target = request.param
    with paper_world(rank, size, "cpu:gloo,xla:xla_cc"):
        yield rank, size, target


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)).to("xla")


def calls_of(step, world):
    """What a step calls, how often, on how many elements, once its model has been built."""
    _, size, target = world
    called = trace.of_call("step", step, target, size if target == "cpu" else None).calls
    for call in called:
        assert call.groups in ((), (tuple(range(size)),)), call
    return Counter((call.op, call.operands) for call in called)


def training(model, optimizer):
    x = torch.ones(4, WIDTH, device="xla")

    def step():
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


LAYER = WIDTH * WIDTH + WIDTH


def test_ddp(world):
    model = nn.parallel.DistributedDataParallel(network())
    step = training(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(2):  # the second makes the buckets anew
        step()
        torch_xla.sync()
    assert calls_of(step, world) == {("all_reduce", (f"f32[{2 * LAYER}]",)): 1}


def test_zero_of_torch(world):
    model = nn.parallel.DistributedDataParallel(network())
    with optimizers._patches.installed():
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
        x = torch.ones(4, WIDTH, device="xla")
        for _ in range(2):
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    called = calls_of(training(model, optimizer), world)
    assert called["all_reduce", (f"f32[{2 * LAYER}]",)] == 1
    assert {op for op, _ in called} <= {"all_reduce", "collective_broadcast"}
    assert len(called) > 1


def test_distribute_tensor(world):
    rank, size, _ = world
    with dtensor.installed():
        mesh = init_device_mesh("xla", (size,))
        whole = torch.arange(2.0 * size).reshape(size, 2).to("xla")
        part = distribute_tensor(whole, mesh, [Shard(0)])
        assert part.shape == (size, 2)
        # Rank 0 sends it, and others do not know what.
        assert part.to_local().tolist() == ([[0.0, 1.0]] if rank == 0 else [[0.0, 0.0]])
        uneven = distribute_tensor(torch.ones(2 * size - 1, 2, device="xla"), mesh, [Shard(0)])
        assert uneven.to_local().shape == (1 if rank == size - 1 else 2, 2)
        assert uneven.full_tensor().shape == (2 * size - 1, 2)
        called = calls_of(lambda: part.full_tensor() * 2, world)
    assert called == {("all_gather", ("f32[1,2]",)): 1}


def test_fsdp2(world):
    _, size, _ = world
    with fsdp.installed():
        mesh = init_device_mesh("xla", (size,))
        model = network()
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        step = training(model, torch.optim.SGD(model.parameters(), lr=0.1))
        called = calls_of(step, world)
    assert called == {
        ("all_gather", (f"f32[{LAYER // size}]",)): 4,  # forward and backward
        ("reduce_scatter", (f"f32[{LAYER}]",)): 2,
    }


def test_fsdp1(world):
    _, size, _ = world
    with fsdp1.installed():
        model = FullyShardedDataParallel(
            network(), device_id=torch_xla.device(), sync_module_states=True
        )
        step = training(model, torch.optim.SGD(model.parameters(), lr=0.1))
        called = calls_of(step, world)
        del model, step
    assert called == {
        ("all_gather", (f"f32[{2 * LAYER // size}]",)): 1,
        ("reduce_scatter", (f"f32[{2 * LAYER}]",)): 1,
    }


def test_megatron(world):
    pytest.importorskip("megatron.core")
    from megatron.core import parallel_state, tensor_parallel

    from torch_xla_cc.adapters import megatron

    _, size, _ = world
    torch_xla_cc.install()
    megatron.install()
    try:
        parallel_state.initialize_model_parallel(size)  # with groups of gloo
        tensor_parallel.model_parallel_cuda_manual_seed(1)
        assert parallel_state.get_tensor_model_parallel_world_size() == size
        x = torch.ones(4, WIDTH, device="xla")
        reduced = tensor_parallel.reduce_from_tensor_model_parallel_region(x)
        assert reduced[0, 0].item() == size
        called = calls_of(
            lambda: tensor_parallel.reduce_from_tensor_model_parallel_region(x * 1), world
        )
        assert called == {("all_reduce", (f"f32[4,{WIDTH}]",)): 1}
    finally:
        parallel_state.destroy_model_parallel()
        megatron.uninstall()
        torch_xla_cc.uninstall()


def test_scripts():
    examples = Path(__file__).parents[2] / "examples" / "clients"
    pytest.importorskip("libtpu")
    options = ("inspect", "--target=tpu:v5e:16x16", "--rank=100", "--step=3", "--format=json")
    done = forks.txcc(*options, examples / "ddp.py")
    assert done.returncode == 0, done.stderr
    assert "rank 100 of 256 in a dry run for tpu:v5e:16x16" in done.stderr
    (report,) = json.loads(done.stdout)
    assert [(row["before"], row["operands"]) for row in report["rows"]] == [
        (["all-reduce"], ["f32[1476]"])
    ]
    # In its second step it reads what rank 0 has of the buckets' parameters.
    done = forks.txcc(*options[:3], "--format=json", examples / "ddp.py")
    assert done.returncode == 0, done.stderr
    numbers, sizes, step = json.loads(done.stdout)
    assert [row["operands"] for row in numbers["rows"]] == [["u32[7]"]]
    assert [row["operands"] for row in sizes["rows"]] == [["u32[1]"]]
    assert [row["operands"] for row in step["rows"]] == [["f32[1476]"]]
