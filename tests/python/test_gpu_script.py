"""tools/gpu/all.sh, as far as it goes without a GPU: it says what it would do, and stops."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools/gpu/all.sh"


def run(*words, **env):
    return subprocess.run(
        [SCRIPT, *words], capture_output=True, text=True, timeout=60, env={**os.environ, **env}
    )


def test_it_says_what_it_would_run():
    done = run()
    assert done.returncode == 0, done.stderr
    scripts = set(re.findall(r"(?:tools/gpu/|--script )(\w+\.py)", done.stdout))
    assert scripts == {"run_there.py", "cost.py", "ahead.py", "clients.py"}
    assert all((SCRIPT.parent / name).is_file() for name in scripts)
    # docs/gpu.md has the same list.
    page = (ROOT / "docs/gpu.md").read_text()
    for what in re.findall(r"^\d\. (.*)", done.stdout, re.M):
        assert what in " ".join(page.split()), what


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there is a driver here")
def test_without_a_gpu_it_stops(tmp_path):
    done = run("--run", str(tmp_path / "out"))
    assert done.returncode == 1 and "there is no NVIDIA GPU here" in done.stderr
    assert not (tmp_path / "out").exists()
