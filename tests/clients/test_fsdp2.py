"""fully_shard (FSDP2)."""

from pathlib import Path

import processes
import pytest
import runs
import torch
import torch.distributed as dist
from torch import nn

pytestmark = pytest.mark.usefixtures("leaves_ranks")


def test_losses_are_those_of_gloo():
    runs.same_losses("fsdp2.py")


def test_replicas_accumulation_and_bfloat16():
    # XLA and torch's kernels for the CPU round at different places.
    options = ("--replicas=2", "--accumulate=2", "--bf16=1")
    runs.same_losses("fsdp2.py", *options, rel=2e-3, ranks=4)


def test_what_is_gathered_is_freed():
    runs.run(str(Path(__file__).parent / "fsdp2_memory.py"))


def test_uninstall_undoes_install():
    from torch.distributed.fsdp._fully_shard import _fsdp_param
    from torch.distributed.tensor import DTensor

    from torch_xla_cc.adapters import fsdp

    def state():
        own = _fsdp_param.FSDPParam
        return [
            _fsdp_param.alloc_storage,
            _fsdp_param.free_storage,
            own.init_unsharded_param,
            own.free_unsharded_param,
            vars(DTensor)["__torch_dispatch__"],
        ]

    before = state()
    fsdp.install()
    assert all(new is not old for new, old in zip(state(), before, strict=True))
    fsdp.uninstall()
    assert state() == before


def gradients_of_odd_widths(rank):
    """Of parameters whose first dimension does not divide: on XLA, and on the CPU by gloo."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from torch_xla_cc.adapters import fsdp

    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    found = {}
    with fsdp.installed():
        for kind in ("xla", "cpu"):
            torch.manual_seed(0)
            layers = nn.Linear(10, 37), nn.ReLU(), nn.Linear(37, 3)
            model = nn.Sequential(*layers).to(kind)
            mesh = init_device_mesh(kind, (dist.get_world_size(),))
            for layer in (layers[0], layers[2], model):
                fully_shard(layer, mesh=mesh)
            x = torch.randn(5, 10, generator=torch.Generator().manual_seed(rank)).to(kind)
            model(x).square().sum().backward()
            found[kind] = [p.grad.full_tensor().cpu() for p in model.parameters()]
    # The world stays: of one that has ended gloo may find the addresses in these ranks' store.
    return found


@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_of_odd_widths(ranks):
    for found in processes.run(ranks, gradients_of_odd_widths):
        assert all(x.abs().sum() > 0 for x in found["cpu"])
        torch.testing.assert_close(found["xla"], found["cpu"])
