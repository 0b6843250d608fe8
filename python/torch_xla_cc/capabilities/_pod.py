"""Probing the pod: what XLA:CPU of jaxlib compiles, and gloo carries between processes."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import torch

from .._aot import CompiledProgram, CompilerCrashed, CompilerError, CompilerMissing
from .._runtime.versions import how_to_install
from ._emit import module
from ._expected import DTYPES, expected, operands, same
from ._grid import REDUCTIONS, TYPES, Cell, Device
from ._outcome import CRASHED, REFUSED, TIMEOUT, WRONG, Outcome
from ._results import Probe, last_words, normalised, outcome_of

TIMEOUT_S = 60.0
_CHILD = Path(__file__).parents[1] / "_pod" / "probe_child.py"
# PJRT_Buffer_Type of the types that are probed.
_NUMBERS = {
    "pred": 1, "s8": 2, "s16": 3, "s32": 4, "s64": 5, "u8": 6, "u16": 7, "u32": 8, "u64": 9,
    "f16": 10, "f32": 11, "f64": 12, "bf16": 13, "c64": 14, "c128": 15, "f8e5m2": 16,
    "f8e4m3fn": 17,
}  # fmt: skip
assert set(TYPES) == set(_NUMBERS)

_PLACE = re.compile(r'UNKNOWN: <unknown>:0: error: (loc\(".*?"\): )?')  # of StableHLO's verifier

Arguments = list[tuple[int, tuple[int, ...], bytes]]
TOKEN = (_NUMBERS["s32"], (1,), bytes(4))  # which calls take as their last argument


class _Answer(NamedTuple):
    refused: str
    # The module, temporary bytes, outputs, seconds of each run.
    made: tuple[bytes, int, list[bytes], list[float]] | None


def probe(device: Device, todo: Sequence[Cell]) -> Iterator[list[Probe]]:
    """The outcomes of the cells, in the order in which they come."""
    with contextlib.closing(Ranks(device.world)) as ranks:
        for _, group in groupby(todo, key=lambda cell: (cell.op, cell.form, cell.number)):
            first, *rest = group
            outcome = _outcome(ranks, first, device)
            yield [Probe(first, outcome)]
            for cell in rest:
                # Ranks meet, or do not, whatever they carry; and a crash takes seconds.
                if outcome.result in (CRASHED, TIMEOUT):
                    yield [Probe(cell, outcome._replace(says=f"as {first.type}"))]
                else:
                    yield [Probe(cell, _outcome(ranks, cell, device))]


def _outcome(ranks: Ranks, cell: Cell, device: Device) -> Outcome:
    """What an earlier program left behind is not to blame: what fails is tried once more."""
    outcome = _once(ranks, cell, device)
    if outcome.result in (CRASHED, TIMEOUT, WRONG):
        ranks.end()
        outcome = _once(ranks, cell, device)
        if outcome.result != WRONG:
            ranks.end()
    return outcome


def _once(ranks: Ranks, cell: Cell, device: Device) -> Outcome:
    try:
        code = module(cell, device)
    except ValueError as error:  # no such native form
        return Outcome(REFUSED, says=f"ours: {normalised(str(error))}")
    answers = ranks.run(code, [_arguments(cell, rank, device.world) for rank in range(ranks.world)])
    if isinstance(answers, Outcome):
        return answers
    if refused := next((answer.refused for answer in answers if answer.refused), ""):
        return Outcome(REFUSED, says=normalised(_PLACE.sub("", refused)))
    for rank, answer in enumerate(answers):
        assert answer.made is not None
        wanted = expected(cell, rank, device.world)
        last = len(answer.made[2]) - (cell.op != "parameter")  # then a token
        got = answer.made[2][last - len(wanted) : last]  # of a recv: after what the send keeps
        if not all(_same(cell, x, y) for x, y in zip(got, wanted, strict=True)):
            alike = all(_alike(cell, x, y) for x, y in zip(got, wanted, strict=True))
            return Outcome(WRONG, says="bits of NaNs change" if alike else "")
    assert answers[0].made is not None
    return outcome_of(CompiledProgram("pod", answers[0].made[0], {}, {}))


def _arguments(cell: Cell, rank: int, world: int) -> Arguments:
    ends = 2 if cell.op in ("send", "recv") else 1  # each has parameters of its own
    own = [
        (_NUMBERS[cell.type], tuple(x.shape), x.contiguous().view(torch.uint8).numpy().tobytes())
        for x in operands(cell, rank, world)
    ]
    return (own if cell.op == "parameter" else [*own, TOKEN]) * ends


def _same(cell: Cell, got: bytes, wanted: torch.Tensor) -> bool:
    x = torch.frombuffer(bytearray(got), dtype=torch.uint8)
    if x.numel() == 0:
        return wanted.numel() == 0
    if cell.op in REDUCTIONS:
        return same(cell, x.view(DTYPES[cell.type]).reshape(wanted.shape), wanted)
    return torch.equal(x, wanted.reshape(-1))


def _alike(cell: Cell, got: bytes, wanted: torch.Tensor) -> bool:
    """Whether but for the bits of NaNs data came as it went."""
    if cell.op in REDUCTIONS or not DTYPES[cell.type].is_floating_point:
        return False
    came = torch.frombuffer(bytearray(got), dtype=torch.uint8).view(DTYPES[cell.type]).double()
    went = wanted.contiguous().view(DTYPES[cell.type]).double().reshape(-1)
    return torch.equal(came.nan_to_num(nan=0.5), went.nan_to_num(nan=0.5))


def compile_hlo(code: bytes, world: int) -> CompiledProgram:
    """What the pod makes of a module, with its figures, and without running it."""
    with contextlib.closing(Ranks(world)) as ranks:
        answers = ranks.run(code, None)
    if isinstance(answers, Outcome):
        raise CompilerCrashed(f"the pod's compiler crashed: {answers.says}", 1, "")
    if answers[0].made is None:
        raise CompilerError(f"'pod': {answers[0].refused}")
    hlo, temporary, *_ = answers[0].made
    return CompiledProgram("pod", hlo, {"temporaries": temporary}, {})


class Ranks:
    """Processes that are one world, and others after one has died."""

    def __init__(self, world: int) -> None:
        self.world = world
        self._started: list[tuple[subprocess.Popen[bytes], Connection]] = []
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115, closed by close()

    def run(
        self, code: bytes, arguments: list[Arguments] | None, times: int = 1
    ) -> list[_Answer] | Outcome:
        """The answer of each rank, or what came between."""
        if not self._started:
            self._start()
        limit = time.monotonic() + TIMEOUT_S
        answers = []
        try:
            for rank, (_, pipe) in enumerate(self._started):
                pipe.send((code, arguments[rank] if arguments else None, times))
            for _, pipe in self._started:
                if not pipe.poll(max(0.0, limit - time.monotonic())):
                    break
                answers.append(_Answer(*pipe.recv()))
        except (EOFError, ConnectionError):
            pass  # one has died
        if len(answers) == self.world:
            return answers
        in_time = time.monotonic() < limit
        self.end()
        self._stderr.seek(0)
        words = last_words(self._stderr.read().decode(errors="replace"))
        return Outcome(CRASHED if in_time else TIMEOUT, says=words if in_time else "")

    def _start(self) -> None:
        found = importlib.util.find_spec("jaxlib")
        if found is None or found.origin is None:
            raise CompilerMissing(f"the pod needs jaxlib: {how_to_install('pod')}")
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self._stderr.truncate(0)
        path = str(Path(found.origin).parents[1])
        for rank in range(self.world):
            ours, theirs = socket.socketpair()
            command = [sys.executable, "-I", str(_CHILD), path, str(rank), str(self.world), address]
            process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._stderr,
                stderr=self._stderr,
                pass_fds=[theirs.fileno()],
            )
            theirs.close()
            self._started.append((process, Connection(ours.detach())))

    def end(self) -> None:
        """End the processes, if there are any."""
        for process, _ in self._started:
            process.kill()
        for process, pipe in self._started:
            process.wait()
            pipe.close()
        self._started = []

    def close(self) -> None:
        """End it all."""
        self.end()
        self._stderr.close()
