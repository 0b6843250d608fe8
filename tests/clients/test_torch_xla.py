"""torch_xla's own training code on collectives of ours, against plain torch in one process."""

import functools

import pytest
import runs

STEPS = 30


@functools.cache
def plain(example, *args):
    return runs.run_launched(example, "--plain", f"--steps={STEPS}", *args).losses


def check(example, *args, rel=1e-5, plain_args=()):
    losses = runs.run_launched(example, f"--steps={STEPS}", *args).losses
    wanted = plain(example, *plain_args)
    assert len(losses) == len(wanted) == STEPS
    assert losses == pytest.approx(wanted, rel=rel)
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize(
    "args",
    [("--checkpoint=1",), ("--reshard=0", "--flatten=0", "--bucket-mb=1")],
    ids=str,
)
def test_fsdp(args):
    check("xla_fsdp.py", *args)


def test_fsdp_in_bfloat16():
    """The loss is of weights that were rounded to 8 bits, and moves as the one that was not."""
    check("xla_fsdp.py", "--bf16=1", rel=0.05)


@pytest.mark.parametrize("args", [(), ("--bucket-mb=1", "--pin-layout=0", "--hook=1")], ids=str)
def test_zero(args):
    check("xla_zero.py", *args)


@pytest.mark.parametrize("clip", ["--clip=1", "--clip=0"])
def test_optimizer_step(clip):
    check("optimizer_step.py", clip, plain_args=[clip])
