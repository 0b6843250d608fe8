"""torch.distributed.checkpoint: what some ranks have saved, others load."""

import pytest
import runs

STEPS = 4


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CHECKPOINT", str(tmp_path))


@pytest.mark.parametrize(
    ("saved_by", "on", "loaded_by"), [(4, "xla_cc", 2), (2, "xla_cc", 4), (4, "gloo", 2)]
)
def test_training_goes_on(saved_by, on, loaded_by):
    before = runs.run("checkpoint.py", f"--steps={STEPS}", f"--backend={on}", ranks=saved_by)
    after = runs.run("checkpoint.py", f"--steps={STEPS}", "--load=1", ranks=loaded_by)
    assert len(before.losses) == len(after.losses) == STEPS
    whole = runs.of_gloo("checkpoint.py", f"--steps={2 * STEPS}", ranks=4)
    assert before.losses + after.losses == pytest.approx(whole, rel=1e-5)
