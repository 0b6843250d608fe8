"""Probing XLA:CPU, which runs what it compiles."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import IO

from ._grid import Cell, Device
from ._outcome import CRASHED, NATIVE, TIMEOUT, WRONG, Outcome
from ._results import Probe, normalised

TIMEOUT_S = 60.0
_TOGETHER = 24  # cells of one program
NEVER_MET = "the ranks never meet, and the process ends after 15 s"
_OF_ANY_TYPE = re.compile(
    r"hlo verifier\].* (In [\w-]+ mode, replica|Replica groups expected)|does not have a layout"
)
_RENDEZVOUS = re.compile(r"[Rr]endezvous|may be stuck|Termination timeout")
_FATAL = re.compile(r"^F\d{4} [\d:.]+ +\d+ ([\w./-]+:\d+\] .*)", re.M)


def probe(device: Device, todo: Sequence[Cell]) -> Iterator[list[Probe]]:
    """The outcomes of the cells, in the order in which they come."""
    with contextlib.closing(_Child(device.world)) as child:
        # Forms that cost time-outs come last.
        todo = sorted(todo, key=lambda cell: cell.form == "partial")
        for _, group in groupby(todo, key=lambda cell: (cell.op, cell.form, cell.number)):
            first, *rest = group
            outcome = child.run([first])
            yield [Probe(first, outcome)]
            if outcome.result in (CRASHED, TIMEOUT) or _OF_ANY_TYPE.search(outcome.says):
                # Ranks meet, or do not, whatever they carry, and at 15 s a time; and XLA looks
                # at groups, and at whether a list has a layout, before types.
                as_first = outcome._replace(says=f"{outcome.says} (as {first.type})".strip())
                yield [Probe(cell, as_first) for cell in rest]
                continue
            most = _TOGETHER if outcome.result == NATIVE else 1
            for at in range(0, len(rest), most):
                yield _probe_together(child, rest[at : at + most])


def _probe_together(child: _Child, some: list[Cell]) -> list[Probe]:
    """All in one program; one that fails is cut in halves, until each has the blame alone."""
    outcome = child.run(some)
    if outcome.result == NATIVE or len(some) == 1:
        return [Probe(cell, outcome) for cell in some]
    half = len(some) // 2
    return _probe_together(child, some[:half]) + _probe_together(child, some[half:])


class _Child:
    """A process that runs cells, and another one after it has died."""

    def __init__(self, world: int) -> None:
        self._world = world
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: IO[bytes] | None = None
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115, closed by close()

    def _start(self) -> None:
        ours, theirs = os.pipe()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("XLA_", "CPU_NUM"))}
        command = [sys.executable, "-m", "torch_xla_cc.capabilities._rank_child"]
        self._stderr.truncate(0)
        self._process = subprocess.Popen(
            [*command, str(theirs), str(self._world)],
            stdin=subprocess.PIPE,
            stdout=self._stderr,
            stderr=self._stderr,
            pass_fds=[theirs],
            env={**kept, "PJRT_DEVICE": "CPU"},
        )
        os.close(theirs)
        self._answers = os.fdopen(ours, "rb", buffering=0)

    def run(self, some: list[Cell]) -> Outcome:
        """The outcome of a program; a process that it kills is followed by another."""
        outcome = self._run(some)
        failed = outcome.result in (CRASHED, TIMEOUT, WRONG) and outcome.says != NEVER_MET
        if failed:
            # What an earlier program left behind may be to blame.
            self.close_process()
            outcome = self._run(some)
        return outcome

    def _run(self, some: list[Cell]) -> Outcome:
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps([str(cell) for cell in some]).encode() + b"\n")
        self._process.stdin.flush()
        limit = time.monotonic() + TIMEOUT_S
        if answer := self._answer(limit):
            return Outcome(*json.loads(answer))
        in_time = time.monotonic() < limit
        self.close_process()
        return self._death(in_time)

    def _answer(self, limit: float) -> str:
        """The child's line, empty if it ends or the time is over."""
        assert self._answers is not None
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._answers], [], [], max(0, limit - time.monotonic()))
            some = self._answers.read(1 << 16) if ready else b""
            if not some:
                return ""
            line += some
        return line.decode()

    def _death(self, in_time: bool) -> Outcome:
        self._stderr.seek(0)
        words = self._stderr.read().decode(errors="replace")
        if _RENDEZVOUS.search(words):
            return Outcome(CRASHED, says=NEVER_MET)
        fatal = _FATAL.search(words)
        return Outcome(CRASHED if in_time else TIMEOUT, says=normalised(fatal[1] if fatal else ""))

    def close_process(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        if self._answers is not None:
            self._answers.close()
        self._process = self._answers = None

    def close(self) -> None:
        """End it all."""
        self.close_process()
        self._stderr.close()
