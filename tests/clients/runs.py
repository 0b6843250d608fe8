"""Runs examples of clients on ranks with XLA devices, and compares the losses with those of gloo.

Those of gloo are in losses.json; `make losses` writes them again, by torchrun.
"""

from __future__ import annotations

import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import forks
import pytest
import torchrun
import worlds

EXAMPLES = Path(__file__).parents[2] / "examples/clients"
GOLDEN = Path(__file__).with_name("losses.json")
UPDATE = bool(os.environ.get("UPDATE_LOSSES"))
STEPS = 8
_PROGRAMS = re.compile(r"^programs run \(compiled\) in the last steps: (.+)$", re.M)
_LOSS = re.compile(r"^step \d+: loss (\S+)$", re.M)
_END = 12_000


class Ran(NamedTuple):
    losses: list[float]
    output: str


def run(
    example: str, *args: str, ranks: int = 2, timeout_s: float = 280.0, device: str | None = None
) -> Ran:
    """The example's losses, and all that it printed."""
    path = str(EXAMPLES / example)
    with tempfile.TemporaryFile() as output:
        of_rank = [(path, [path, *args])] * ranks
        env = {**worlds.FAST, **({"PJRT_DEVICE": device} if device else {})}
        started = torchrun.Ranks(ranks, forks.run_as_main, of_rank, env, output)
        try:
            _wait(started.processes, timeout_s, f"{example} {args}", output)
        finally:
            started.close()
        return _ran(_text(output))


def _wait(processes: Sequence[Any], timeout_s: float, what: str, output: Any) -> None:
    """Until all have ended well. One that has not ends the others, as torchrun does."""
    end = time.monotonic() + timeout_s
    for process in processes:
        while process.is_alive() and time.monotonic() < end:
            process.join(0.05)
            failed = [other for other in processes if other.exitcode]
            assert not failed, f"{what}:\n{_text(output)[-_END:]}"
        assert process.exitcode == 0, f"{what}, {process.exitcode}:\n{_text(output)[-_END:]}"


def _text(output: Any) -> str:
    return os.pread(output.fileno(), 1 << 26, 0).decode(errors="replace")


def run_launched(example: str, *args: str, timeout_s: float = 280.0) -> Ran:
    """The same of an example whose ranks are threads."""
    environment = {**os.environ, **worlds.FAST, "PJRT_DEVICE": "CPU"}
    done = forks.run_script(EXAMPLES / example, *args, env=environment, timeout=timeout_s)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-_END:]
    return _ran(output)


def _ran(output: str) -> Ran:
    return Ran([float(loss) for loss in _LOSS.findall(output)], output)


def same_losses(
    example: str,
    *args: str,
    rel: float = 1e-5,
    steps: int = STEPS,
    ranks: int = 2,
    device: str | None = None,
) -> Ran:
    """Its run on XLA devices, whose losses are to be those of gloo, and are to fall."""
    ours = run(example, *args, f"--steps={steps}", ranks=ranks, device=device)
    wanted = of_gloo(example, *args, f"--steps={steps}", ranks=ranks)
    assert len(ours.losses) == len(wanted) == steps
    assert ours.losses == pytest.approx(wanted, rel=rel)
    assert ours.losses[-1] < ours.losses[0]
    return ours


def programs_of_a_step(ran: Ran) -> tuple[int, int]:
    """Programs run and compiled in most of the last steps.

    On a busy machine a step may run what is pending before its end, for a rank that waits for it.
    """
    (line,) = _PROGRAMS.findall(ran.output)
    steps = [(int(run), int(compiled)) for run, compiled in re.findall(r"(\d+) \((\d+)\)", line)]
    pair, times = collections.Counter(steps).most_common(1)[0]
    assert 2 * times > len(steps), line
    return pair


def of_gloo(example: str, *args: str, ranks: int = 2) -> list[float]:
    """The losses of torchrun of the same on gloo and CPU tensors, as they are in the file."""
    start = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    name = " ".join([example, *args, f"on {ranks} ranks"])
    return _golden(name, [*start, str(EXAMPLES / example), *args, "--backend=gloo"])


def of_one_process(example: str, *args: str) -> list[float]:
    """The same of plain torch, without ranks."""
    name = " ".join([example, *args, "in plain torch"])
    return _golden(name, [str(EXAMPLES / example), *args, "--plain"])


def _golden(name: str, command: list[str]) -> list[float]:
    if UPDATE:
        _write(name, command)
    losses: list[float] = json.loads(GOLDEN.read_text()).get(name, [])
    assert losses, f"{GOLDEN} has no losses of {name!r}: make losses"
    return losses


def _write(name: str, command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    losses = _ran(done.stdout).losses
    assert done.returncode == 0 and losses, done.stdout[-_END:] + done.stderr[-_END:]
    known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    rows = sorted({**known, name: losses}.items())
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in rows)
    GOLDEN.write_text(f"{{\n{lines}\n}}\n")
