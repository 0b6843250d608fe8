"""examples/pretraining on the pod: a rank is lost, and torchrun goes on from the checkpoint."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pods
import pytest

ROOT = Path(__file__).parents[2]
STEPS, EVERY, LOST = 10, 4, 6


def rows(folder):
    log = folder / "losses.jsonl"
    return [json.loads(row) for row in log.read_text().splitlines()] if log.exists() else []


def ranks_of(pid):
    """The processes that torchrun has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if b"--folder" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


@pytest.mark.parametrize("script", ["fsdp2.py", "megatron_gpt.py"])
@pytest.mark.timeout(600)
def test_a_lost_rank_costs_the_steps_since_the_checkpoint(script, tmp_path):
    """One is killed once LOST steps are logged; the steps that are trained again have one loss."""
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]
    options = ["--layers=1", f"--steps={STEPS}", f"--save-every={EVERY}", f"--folder={tmp_path}"]
    with open(tmp_path / "output", "wb") as output:
        process = subprocess.Popen(
            [*run, "--max-restarts=1", str(ROOT / "examples/pretraining" / script), *options],
            env={**pods.installed(tmp_path), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
            stdout=output,
            stderr=output,
        )
    end = time.monotonic() + 500
    lost = False
    try:
        while process.poll() is None and time.monotonic() < end:
            if not lost and len(rows(tmp_path)) >= LOST:
                os.kill(ranks_of(process.pid)[2], signal.SIGKILL)
                lost = True
            time.sleep(0.02)
        assert process.poll() == 0, (tmp_path / "output").read_text()[-4000:]
    finally:
        process.terminate()
        process.wait(30)
    found = rows(tmp_path)
    first = {row["step"]: row["loss"] for row in found if row["restarts"] == 0}
    again = {row["step"]: row["loss"] for row in found if row["restarts"] == 1}
    assert list(again) == list(range(EVERY, STEPS))
    assert list(first)[:LOST] == list(range(LOST))
    twice = first.keys() & again.keys()
    assert [first[step] for step in twice] == pytest.approx([again[step] for step in twice])
    assert again[STEPS - 1] < first[0]
