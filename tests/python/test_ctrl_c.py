"""Ctrl-C while ranks run, wait for each other, or do nothing."""

import os
import signal
import subprocess
import sys
import time

import pytest
from test_launch import PRELUDE, SECONDS

CTRL_C = """
import signal
# What is started in the background, as these tests may be, ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
def rank(rank):
    open(sys.argv[1] + str(rank), "w").close()
    x = torch.ones(1, device=torch_xla.device())
    while where == "loop":
        pass
    while where == "sleep":
        time.sleep(0.01)
    while where == "steps":
        x = xm.all_reduce("max", x)
        torch_xla.sync()
    while where == "recv":
        xm.recv((1,), 4)
    if rank > 0:
        x = xm.all_reduce("sum", x)
        torch_xla.sync()
    time.sleep(1000)
torch_xla_cc.launch(rank, (), 6)
"""


@pytest.mark.parametrize("where", ["loop", "sleep", "steps", "recv", "sync", "sync", "sync"])
def test_ctrl_c(where, tmp_path):
    script = PRELUDE + f"where = {where!r}" + CTRL_C
    with (tmp_path / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", script, f"{tmp_path}/rank"],
            env={**os.environ, "PJRT_DEVICE": "CPU"},
            stderr=stderr,
        )
    try:
        end = time.monotonic() + 100
        while len(list(tmp_path.glob("rank*"))) < 6:
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        time.sleep(1)  # into the loop, or to the meeting of the ranks
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()
    took = time.monotonic() - start
    told = (tmp_path / "stderr").read_text()
    assert code == -signal.SIGINT, told[-3000:]
    assert told.rstrip().endswith("KeyboardInterrupt")
    assert "after ranks disagreed" not in told  # of ranks that were stopped meanwhile
    assert took < SECONDS
