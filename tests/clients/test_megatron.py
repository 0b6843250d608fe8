"""Megatron-core: tensor, sequence, pipeline, expert and data parallel; its layer on TPU."""

import json
import subprocess
import sys

import forks
import pytest
import runs

GPT = "megatron_gpt.py"


@pytest.mark.parametrize(
    ("options", "ranks"),
    [
        ("--tp=2", 2),
        ("--tp=2 --sequence-parallel=1", 2),
        ("--tp=2 --pp=2", 4),
    ],
)
def test_losses_are_those_of_gloo(options, ranks):
    ran = runs.same_losses(GPT, *options.split(), rel=1e-4, ranks=ranks)
    assert ("reduce_scatter" in ran.output) == ("--sequence-parallel=1" in options)
    assert ("isend" in ran.output or "send(" in ran.output) == ("--pp=2" in options)


def test_distributed_optimizer():
    options = ("--tp=2", "--distributed-optimizer=1")
    ran = runs.same_losses(GPT, *options, rel=1e-4, steps=6, ranks=4)
    assert "reduce_scatter_tensor(" in ran.output and "all_gather_into_tensor(" in ran.output


def test_two_parts_of_the_model_on_each_stage():
    ran = runs.same_losses(GPT, "--pp=2", "--vpp=2", rel=1e-4, steps=6)
    assert "send(" in ran.output and "recv(" in ran.output


@pytest.mark.parametrize("options", [(), ("--vpp=2",)])
def test_on_the_pod_stages_run_one_program(options):
    kwargs = {"steps": 6} if options else {}
    ran = runs.same_losses(GPT, "--pp=2", *options, rel=1e-4, device="POD", **kwargs)
    assert runs.programs_of_a_step(ran) == (1, 0)
    messages = [row for row in ran.output.splitlines() if "send(" in row or "recv(" in row]
    assert messages and all("graph" in row for row in messages)


@pytest.mark.parametrize("capacity", [0, 1])
def test_experts(capacity):
    """Without a capacity rows go as the router says: each step has shapes of its own.

    With it experts drop rows, and are padded.
    """
    ran = runs.same_losses(GPT, "--experts=4", "--ep=2", f"--capacity={capacity}", steps=6)
    assert ("all_to_all_single(rows of" in ran.output) == (not capacity)
    if capacity:
        assert runs.programs_of_a_step(ran)[1] == 0


def test_a_layer_on_tpu():
    pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")
    ran = forks.run_script(runs.EXAMPLES / "megatron_for_tpu.py", timeout=280)
    assert ran.returncode == 0, ran.stderr[-8000:]
    assert ran.stdout.count("for tpu:v5e:2x4, 8 ranks") == 4


def test_the_whole_step_of_the_example_on_tpu():
    """Nothing in it is read: the norm of gradients, and clipping by it, are a part of it."""
    pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")
    command = [sys.executable, "-m", "txcc", "inspect", "--rank=1", "--target=tpu:v5e:2x4"]
    command += ["--format=json", "--timeout=250", str(runs.EXAMPLES / GPT), "--", "--tp=4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    (report,) = json.loads(done.stdout)
    calls = [call for row in report["rows"] for call in row["calls"]]
    assert any(path.endswith("megatron/core/optimizer/optimizer.py") for path, _ in calls)
    assert any(path.endswith("tensor_parallel/layers.py") for path, _ in calls)
    assert {row["rule"] for row in report["rows"] if row["rule"]} == {"native"}
