"""Megatron-core: tensor, sequence, pipeline, expert and data parallel; its layer on TPU."""

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


def test_experts():
    """Rows go to experts as the router says: each step has shapes of its own, and is compiled.

    A row whose two best experts are nearly equal may go to the other one, in this step and later.
    """
    options = ("--experts=4", "--ep=2", "--steps=5")
    ours = runs.run(GPT, *options)
    wanted = runs.of_gloo(GPT, *options)
    assert len(ours.losses) == len(wanted) == 5
    assert ours.losses[:4] == pytest.approx(wanted[:4], rel=1e-3)
    assert ours.losses == pytest.approx(wanted, rel=0.03)
    assert ours.losses[-1] < ours.losses[0]
    assert "all_to_all_single(rows of" in ours.output


def test_a_layer_on_tpu():
    pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")
    ran = forks.run_script(runs.EXAMPLES / "megatron_for_tpu.py", timeout=280)
    assert ran.returncode == 0, ran.stderr[-8000:]
    assert ran.stdout.count("for tpu:v5e:2x4, 8 ranks") == 4
