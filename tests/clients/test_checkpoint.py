"""torch.distributed.checkpoint: what some ranks have saved, others load."""

import functools

import pytest
import runs

STEPS = 8


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CHECKPOINT", str(tmp_path))


@functools.cache
def whole():
    """The losses of a run that is not interrupted."""
    return runs.run("checkpoint.py", f"--steps={2 * STEPS}", "--backend=gloo").losses


@pytest.mark.parametrize(
    ("saved_by", "on", "loaded_by"), [(4, "xla_cc", 2), (2, "xla_cc", 4), (4, "gloo", 4)]
)
def test_training_goes_on(saved_by, on, loaded_by):
    before = runs.run("checkpoint.py", f"--steps={STEPS}", f"--backend={on}", ranks=saved_by)
    after = runs.run("checkpoint.py", f"--steps={STEPS}", "--load=1", ranks=loaded_by)
    assert len(before.losses) == len(after.losses) == STEPS
    assert before.losses + after.losses == pytest.approx(whole(), rel=1e-5)
