"""fully_shard (FSDP2)."""

import json
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pods
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


def gradients_of_odd_widths(rank, small):
    """Of parameters whose first dimension does not divide: on XLA, and on the CPU by gloo.

    `small`: bytes of a parameter below which it is gathered with others.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from torch_xla_cc.adapters import _fsdp_pieces, fsdp

    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    found = {}
    with fsdp.installed(), mock.patch.object(_fsdp_pieces, "_SMALL", small):
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


@pytest.mark.parametrize(
    ("ranks", "where", "small"),
    [(2, processes, 0), (3, processes, 0), (3, pods, 256), (3, pods, 0)],
)
def test_gradients_of_odd_widths(ranks, where, small):
    """Between processes each call goes through the host; on a pod its parts are in programs."""
    if where is pods:
        pytest.importorskip("jaxlib", reason="the pod needs it")
    for found in where.run(ranks, gradients_of_odd_widths, small):
        assert all(x.abs().sum() > 0 for x in found["cpu"])
        torch.testing.assert_close(found["xla"], found["cpu"])


@pytest.mark.parametrize(("how", "most"), [("fsdp_bf16", 1.01), ("fsdp", 0.76)])
def test_on_a_tpu_nothing_is_joined(how, most):
    """Weights are gathered and reduced as they are: joined, they took 40 MB of temporaries here.

    Of float32 they are gathered in bf16, which is all that the products take.
    """
    pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")
    script = Path(__file__).parents[2] / "benchmarks/steps_mlp.py"
    command = [sys.executable, "-m", "txcc", "inspect", "--rank=1", "--target=tpu:v5e:2x4"]
    command += ["--format=json", "--timeout=250", str(script), "--", f"--how={how}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    (report,) = json.loads(done.stdout)
    rows = [(row["after"], operand) for row in report["rows"] for operand in row["operands"]]
    assert rows.count(("all-gather", "bf16[524288]")) == 4
    dtype = "bf16" if how == "fsdp_bf16" else "f32"
    assert rows.count(("reduce-scatter", f"{dtype}[8,4096,128]")) == 4
    assert report["memory"]["temporaries"] < 2**20
    assert report["link_bytes"] < most * report["fewest_link_bytes"]
