"""torch_xla's own training code on collectives of ours, against plain torch in one process."""

import json

import forks
import pytest
import runs

STEPS = 12


def check(example, *args, rel=1e-5, plain_args=()):
    losses = runs.run_launched(example, f"--steps={STEPS}", *args).losses
    wanted = runs.of_one_process(example, f"--steps={STEPS}", *plain_args)
    assert len(losses) == len(wanted) == STEPS
    assert losses == pytest.approx(wanted, rel=rel)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    "args",
    [("--checkpoint=1",), ("--reshard=0", "--flatten=0", "--bucket-mb=1")],
    ids=str,
)
def test_fsdp(args):
    check("xla_fsdp.py", *args)


def test_whole_tiles_stay_reduce_scatters_on_tpu():
    pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")
    example = runs.EXAMPLES / "xla_fsdp.py"
    options = ("--format=json", "--target=tpu:v5e:2x2", example, "--", "--multiple=2048")
    ran = forks.txcc("inspect", *options, timeout=200)
    assert ran.returncode == 0, ran.stderr[-8_000:]
    (report,) = json.loads(ran.stdout)
    assert {row["after"] for row in report["rows"] if row["before"] == ["reduce-scatter"]} == {
        "reduce-scatter"
    }


def test_fsdp_in_bfloat16():
    """The loss is of weights that were rounded to 8 bits, and moves as the one that was not."""
    check("xla_fsdp.py", "--bf16=1", rel=0.05)


@pytest.mark.parametrize("args", [(), ("--bucket-mb=1", "--pin-layout=0", "--hook=1")], ids=str)
def test_zero(args):
    check("xla_zero.py", *args)


@pytest.mark.parametrize("clip", ["--clip=1", "--clip=0"])
def test_optimizer_step(clip):
    check("optimizer_step.py", clip, plain_args=[clip])
