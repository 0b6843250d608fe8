"""DeepSpeed: ZeRO, its own Adam, checkpoints, and what the adapter changes."""

import json
from pathlib import Path

import forks
import programs
import pytest
import runs

PROGRAM = str(Path(__file__).parent / "deepspeed_checkpoints.py")
VALUES = str(Path(__file__).parent / "deepspeed_values.py")
BRANCHES = str(Path(__file__).parent / "deepspeed_branches.py")


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_losses_are_those_of_gloo(stage):
    ran = runs.same_losses("deepspeed_zero.py", f"--stage={stage}", ranks=4 if stage == 3 else 2)
    assert ("reduce_scatter_tensor" in ran.output) == (stage == 3)


def test_bfloat16_losses_are_those_of_gloo():
    runs.same_losses("deepspeed_zero.py", "--stage=2", "--bf16=1", rel=0.05)


@pytest.mark.parametrize("stage", [2, 3])
def test_optimizer_on_the_host(stage):
    runs.same_losses("deepspeed_zero.py", f"--stage={stage}", "--offload=1", steps=6)


def test_fused_adam_is_that_of_torch():
    runs.run(PROGRAM, "adam")


@pytest.mark.parametrize("stage", [1, 3])
def test_checkpoints_are_read_again(stage):
    runs.run(PROGRAM, str(stage))


@pytest.mark.parametrize("stage", [1, 3])
def test_checkpoints_are_read_again_by_one_program(stage, monkeypatch):
    pytest.importorskip("jaxlib", reason="the pod needs it")
    monkeypatch.setenv("TORCH_XLA_CC_POD_PROGRAMS", "same")
    runs.run(PROGRAM, str(stage), device="POD")


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_users_read_and_write_gradients_parameters_and_states(stage, monkeypatch):
    pytest.importorskip("jaxlib", reason="the pod needs it")
    monkeypatch.setenv("TORCH_XLA_CC_POD_PROGRAMS", "same")
    ran = runs.run(VALUES, str(stage), ranks=3, device="POD")
    assert ran.output.count("all are equal") == 3


@pytest.mark.parametrize("stage", [1, 2])
def test_ranks_that_use_other_layers(stage, monkeypatch):
    """As on no CPU device, where DeepSpeed reduces the gradients itself, to other averages."""
    pytest.importorskip("jaxlib", reason="the pod needs it")
    monkeypatch.setenv("TORCH_XLA_CC_POD_PROGRAMS", "same")
    monkeypatch.setenv("TORCH_XLA_CC_CALLS", "agree")
    ran = runs.run(BRANCHES, str(stage), ranks=3, device="POD")
    assert ran.output.count("all are equal") == 3


@forks.alone
def test_clipping_is_theirs_and_reads_nothing():
    import types

    import torch
    import torch_xla
    from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer

    from torch_xla_cc.adapters import deepspeed as adapter

    def clipped(device, norm, clip_grad, loss_scale):
        optimizer = types.SimpleNamespace(
            clip_grad=clip_grad, loss_scale=loss_scale, device=torch.device(device)
        )
        made = [torch.tensor(x, device=device) for x in ([1.0, -2.0], [3.0], [0.5, 0.25, 8.0])]
        total = torch.tensor(norm, device=device)
        torch_xla.sync(wait=True)
        before = programs.ran()
        DeepSpeedZeroOptimizer.unscale_and_clip_grads(optimizer, [made[0], made[1:]], total)
        assert programs.ran() == before
        return torch.cat(made).cpu()

    theirs = DeepSpeedZeroOptimizer.unscale_and_clip_grads
    with adapter.installed():
        (torch.ones(1, device="xla") + 1).cpu()  # the first program
        for norm in (0.1, 5.0, 1e9, 0.0, -1.0, float("inf"), float("nan")):
            for clip_grad in (0.0, 1.0):
                for loss_scale in (1.0, 128.0):
                    of = (norm, clip_grad, loss_scale)
                    assert torch.allclose(clipped("xla", *of), clipped("cpu", *of)), of
        assert DeepSpeedZeroOptimizer.unscale_and_clip_grads is not theirs
    assert DeepSpeedZeroOptimizer.unscale_and_clip_grads is theirs


@pytest.mark.parametrize(("stage", "count"), [(0, 1), (1, 2), (3, 2)])
def test_programs_of_a_step_on_the_pod(stage, count):
    pytest.importorskip("jaxlib", reason="the pod needs it")
    ran = runs.run("deepspeed_zero.py", f"--stage={stage}", "--steps=10", device="POD")
    assert runs.programs_of_a_step(ran) == (count, 0)


@forks.alone
def test_random_state():
    from torch_xla.core import xla_model

    from torch_xla_cc.adapters._deepspeed import XlaAccelerator

    accelerator = XlaAccelerator()
    for seed in (0, 3, 2**63 + 5, 2**64 - 1):
        xla_model.set_rng_state(seed)
        state = accelerator.get_rng_state()
        accelerator.manual_seed(7)
        accelerator.set_rng_state(state)
        assert xla_model.get_rng_state() == seed


def test_uninstall_undoes_install(monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    from deepspeed.accelerator import get_accelerator

    from torch_xla_cc.adapters import deepspeed as adapter

    def state():
        engine = adapter.DeepSpeedEngine
        return [
            get_accelerator(),
            adapter.fused_adam.FusedAdamBuilder,
            engine.__init__,
            engine._get_shared_params,
            engine.zero_reduce_bucket_size,
            adapter.TorchCheckpointEngine.load,
            adapter.utils.has_inf_or_nan,
            adapter.loss_scaler.has_inf_or_nan,
            adapter.stage_1_and_2.has_inf_or_nan,
            adapter.stage3.has_inf_or_nan,
        ]

    before = state()
    adapter.install()
    adapter.install()
    assert get_accelerator().device_name() == "xla"
    assert all(new is not old for new, old in zip(state(), before, strict=True))
    adapter.uninstall()
    assert all(new is old for new, old in zip(state(), before, strict=True))


@pytest.mark.parametrize(("stage", "calls"), [(1, [2, 1]), (2, [2, 1]), (3, [3, 0])])
def test_the_step_of_a_tpu_is_reported_in_parts(stage, calls):
    """It reads whether the norm of gradients is finite; on paper it is, and the step goes on."""
    pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")
    options = ["--rank=1", "--target=tpu:v5e:2x4", "--format=json"]
    script = runs.EXAMPLES / "deepspeed_zero.py"
    done = forks.txcc("inspect", *options, script, "--", f"--stage={stage}", timeout=200)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "The step reads at utils.py:" in done.stderr
    reports = json.loads(done.stdout)
    assert [one["summary"]["traced"] for one in reports] == calls
    # On paper a part is at the place of this rank's, but its norm is not that of each other rank.
    assert reports[0]["summary"]["gone"] == 0
