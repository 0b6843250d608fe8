"""accelerate, with a model of transformers."""

import os
from pathlib import Path

import forks
import pytest
import runs
import worlds


def test_losses_are_those_of_gloo():
    runs.same_losses("accelerate_gpt2.py")


def test_losses_of_trainer_are_those_of_gloo():
    """And its model is saved, with a weight that two layers share."""
    runs.same_losses("trainer_gpt2.py", steps=6)


def test_state_is_saved_and_loaded():
    runs.run(str(Path(__file__).parent / "accelerate_state.py"))


def test_its_own_way_to_xla_devices_on_threads():
    program = Path(__file__).parent / "accelerate_threads.py"
    environment = {**os.environ, **worlds.FAST, "PJRT_DEVICE": "CPU", "USE_TORCH_XLA": "1"}
    ran = forks.run_script(program, env=environment, timeout=200)
    assert ran.returncode == 0, ran.stderr[-8_000:]


def test_an_accelerate_that_has_found_torch_xla_is_refused(monkeypatch):
    monkeypatch.setenv("USE_TORCH_XLA", "1")
    import accelerate  # noqa: F401 (it looks now)

    from torch_xla_cc.adapters import accelerate as adapter

    with pytest.raises(RuntimeError, match="Call install\\(\\) before accelerate is imported"):
        adapter.install()
