"""Runs examples of clients under torchrun on XLA devices and on gloo, and compares the losses."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples/clients"
# Compiling takes most of the time of programs that run a few steps.
_FAST = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
_LOSS = re.compile(r"^step \d+: loss (\S+)$", re.M)


class Ran(NamedTuple):
    losses: list[float]
    output: str


def run(example: str, *args: str, ranks: int = 4, timeout_s: float = 280.0) -> Ran:
    """The example's losses, and all that it printed."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return _run([*torchrun, str(EXAMPLES / example), *args], timeout_s)


def run_launched(example: str, *args: str, timeout_s: float = 280.0) -> Ran:
    """The same of an example whose ranks are threads."""
    return _run([str(EXAMPLES / example), *args], timeout_s)


def _run(arguments: list[str], timeout_s: float) -> Ran:
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, "PJRT_DEVICE": "CPU", "OMP_NUM_THREADS": "1", "XLA_FLAGS": _FAST},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # to be ended with its ranks
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        print(output[-12_000:])
        raise
    assert process.returncode == 0, output[-12_000:]
    return Ran([float(loss) for loss in _LOSS.findall(output)], output)


def same_losses(
    example: str, *args: str, rel: float = 1e-5, steps: int = 30, ranks: int = 4
) -> Ran:
    """Its run on XLA devices, whose losses are to be those of gloo, and are to fall."""
    ours = run(example, *args, f"--steps={steps}", ranks=ranks)
    theirs = run(example, *args, f"--steps={steps}", "--backend=gloo", ranks=ranks)
    assert len(ours.losses) == len(theirs.losses) == steps
    assert ours.losses == pytest.approx(theirs.losses, rel=rel)
    assert ours.losses[-1] < ours.losses[0]
    return ours
