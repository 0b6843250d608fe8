"""accelerate, with a model of transformers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import runs


def test_losses_are_those_of_gloo(monkeypatch):
    # Most of its time is compiling on four ranks, and that takes a third less then.
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
    runs.same_losses("accelerate_gpt2.py")


def test_losses_of_trainer_are_those_of_gloo():
    """And its model is saved, with a weight that two layers share."""
    runs.same_losses("trainer_gpt2.py", steps=10, ranks=2)


def test_state_is_saved_and_loaded():
    runs.run(str(Path(__file__).parent / "accelerate_state.py"), ranks=2)


def test_its_own_way_to_xla_devices_on_threads():
    program = Path(__file__).parent / "accelerate_threads.py"
    environment = {**os.environ, "PJRT_DEVICE": "CPU", "USE_TORCH_XLA": "1"}
    ran = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, timeout=200
    )
    assert ran.returncode == 0, ran.stderr[-8_000:]


def test_an_accelerate_that_has_found_torch_xla_is_refused(monkeypatch):
    monkeypatch.setenv("USE_TORCH_XLA", "1")
    import accelerate  # noqa: F401 (it looks now)

    from torch_xla_cc.adapters import accelerate as adapter

    with pytest.raises(RuntimeError, match="Call install\\(\\) before accelerate is imported"):
        adapter.install()
