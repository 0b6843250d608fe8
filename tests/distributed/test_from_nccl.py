"""docs/coming_from_nccl.md: the script before, its changed lines, and the script after."""

import difflib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/coming_from_nccl.md").read_text()
AFTER = ROOT / "examples/from_nccl.py"


def block(mark):
    found = re.search(rf"^<!-- {mark} -->\n```\w+\n(.*?)^```$", PAGE, re.M | re.S)
    assert found
    return found[1]


def code(text):
    """Without the docstring, by lines."""
    return re.sub(r'\A""".*?"""\n+', "", text, flags=re.S).splitlines()


def test_the_changed_lines_are_those_that_differ():
    def changed(lines):
        lines = [line for line in lines if line[:1] in "+-" and line.strip("+-")]
        return [line for line in lines if not line.startswith(("---", "+++"))]

    differs = difflib.unified_diff(code(block("before")), code(AFTER.read_text()), n=0)
    assert sorted(changed(differs)) == sorted(changed(block("diff").splitlines()))


def losses(script):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "PJRT_DEVICE": "CPU", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [*command, str(script)], capture_output=True, text=True, env=environment, timeout=240
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-6000:]
    return [float(loss) for loss in re.findall(r"^step \d: loss (\S+)$", ran.stdout, re.M)]


def test_losses_are_those_before(tmp_path):
    """Before, there with gloo on the CPU."""
    text = block("before").replace('"nccl"', '"gloo"').replace('"cuda"', '"cpu"')
    script = tmp_path / "before.py"
    script.write_text(re.sub(r"^torch\.cuda\..*\n", "", text, flags=re.M))
    before = losses(script)
    assert len(before) == 5
    assert losses(AFTER) == pytest.approx(before, rel=1e-5)
