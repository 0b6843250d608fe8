"""Training on a pod: the demo, and a part of the clients. `pytest --on-pod` runs all there."""

import sys
from pathlib import Path

import pods
import pytest
import runs
import worlds

_STEPS = 8
_EXAMPLES = str(Path(__file__).parents[2] / "examples")


def of_the_demo(rank, ranks):
    """The demo's losses on this rank."""
    sys.path.insert(0, _EXAMPLES)
    import demo

    return demo.train(rank, ranks, _STEPS, demo.Sizes(), lambda step: None)[0]


def test_the_demo_is_what_it_is_on_threads():
    on_pod = pods.run(4, of_the_demo, 4, timeout_s=200)
    on_threads = worlds.run(4, of_the_demo, 4, timeout_s=200)
    for ours, theirs in zip(on_pod, on_threads, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6)
        assert ours == on_pod[0]
        assert ours[-1] < ours[0]


@pytest.mark.parametrize(
    ("example", "options", "ranks"),
    [
        ("ddp.py", (), 4),
        ("dtensor_tp.py", ("--tp=2",), 4),
        ("fsdp1.py", ("--strategy=0", "--orig=0", "--accumulate=2", "--clip=1"), 2),
        ("fsdp2.py", (), 2),
        ("megatron_gpt.py", ("--tp=2", "--sequence-parallel=1"), 2),
        ("megatron_gpt.py", ("--tp=2", "--distributed-optimizer=1", "--buckets=1"), 4),
    ],
)
def test_ranks_run_one_program_with_the_losses_of_gloo(example, options, ranks, monkeypatch):
    monkeypatch.setenv("TORCH_XLA_CC_POD_PROGRAMS", "same")
    ran = runs.same_losses(example, *options, ranks=ranks, device="POD")
    assert runs.programs_of_a_step(ran) == (1, 0)


_UNEVEN = ("--width=37", "--groups=2", "--clip=1")  # the parameters of two groups do not divide


@pytest.mark.parametrize(
    ("options", "ranks", "programs"),
    [
        (("--stage=1",), 2, 2),
        (("--stage=2", *_UNEVEN, "--accumulate=2", "--overlap=1", "--contiguous=0"), 3, 3),
        (("--stage=3",), 4, 2),
        (("--stage=3", *_UNEVEN, "--accumulate=2", "--overlap=1"), 3, 3),
        (("--stage=3", *_UNEVEN, "--scatter=0"), 4, 2),
    ],
)
def test_ranks_of_zero_run_one_program(options, ranks, programs, monkeypatch):
    """One more than batches: DeepSpeed reads whether the norm of the gradients is finite."""
    monkeypatch.setenv("TORCH_XLA_CC_POD_PROGRAMS", "same")
    ran = runs.same_losses("deepspeed_zero.py", *options, ranks=ranks, device="POD")
    assert runs.programs_of_a_step(ran) == (programs, 0)


def test_ranks_of_zero_run_one_program_in_bfloat16(monkeypatch):
    monkeypatch.setenv("TORCH_XLA_CC_POD_PROGRAMS", "same")
    options = ("--stage=2", "--bf16=1")
    ran = runs.same_losses("deepspeed_zero.py", *options, rel=0.05, device="POD")
    assert runs.programs_of_a_step(ran) == (2, 0)


@pytest.mark.parametrize("options", [("--stage=1",), ("--stage=3", "--width=5")])
def test_eight_ranks(options, monkeypatch):
    """With a width of 5 there are parameters of fewer elements than ranks."""
    monkeypatch.setenv("TORCH_XLA_CC_POD_PROGRAMS", "same")
    runs.same_losses("deepspeed_zero.py", *options, steps=5, ranks=8, device="POD")


@pytest.mark.parametrize(
    ("example", "options", "ranks", "count"),
    [
        ("pipeline.py", ("--one-f-one-b=0",), 2, 8),
        ("zero_optimizer.py", (), 4, 10),
    ],
)
def test_calls_of_programs_that_differ_run_beside_them(example, options, ranks, count, monkeypatch):
    monkeypatch.setenv("TORCH_XLA_CC_POD_PROGRAMS", "same")
    ran = runs.same_losses(example, *options, ranks=ranks, device="POD")
    assert runs.programs_of_a_step(ran) == (count, 0)


def test_what_is_a_program_of_each_rank_is_refused(monkeypatch):
    """Where ranks do not agree on what they run."""
    monkeypatch.setenv("TORCH_XLA_CC_POD_PROGRAMS", "same")
    monkeypatch.setenv("TORCH_XLA_CC_CALLS", "each")
    with pytest.raises(AssertionError, match="has instruction"):
        runs.run("pipeline.py", "--one-f-one-b=0", "--steps=2", ranks=2, device="POD")
