"""What came of a probe, and the file that remembers it while a long run goes on."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from .._aot import CompilerCrashed, CompilerError, CompilerTimeout
from .._aot.program import CompiledProgram
from .._aot.query import collectives
from ._grid import Cell, Device
from ._outcome import CRASHED, NATIVE, REFUSED, TIMEOUT, Outcome

_LONGEST = 160


class Probe(NamedTuple):
    """A cell and its outcome."""

    cell: Cell
    outcome: Outcome


def outcome_of(result: CompiledProgram | CompilerError) -> Outcome:
    """The outcome of a compilation ahead of time."""
    if isinstance(result, CompilerTimeout):
        return Outcome(TIMEOUT)
    if isinstance(result, CompilerCrashed):
        return Outcome(CRASHED, says=last_words(result.stderr))
    if isinstance(result, CompilerError):
        return Outcome(REFUSED, says=normalised(str(result).partition("': ")[2]))
    counts = Counter(found.opcode for found in collectives(result))
    return Outcome(NATIVE, " + ".join(counted(name, n) for name, n in sorted(counts.items())))


def counted(name: str, number: int) -> str:
    """ "all-gather", "2 all-gather"."""
    return name if number == 1 else f"{number} {name}"


# A fatal line of absl's log: "F1121 15:27:18.503485    2861 file.cc:24] what".
_FATAL = re.compile(r"^F\d{4} [\d:.]+ +\d+ ([\w./-]+:\d+\] .*)|(Check failed: .*)", re.M)
_STATUS = re.compile(r"^Status: (.*)", re.M)


def last_words(stderr: str) -> str:
    found = _STATUS.search(stderr) or _FATAL.search(stderr)
    if found:
        return normalised(next(group for group in found.groups() if group))
    return "segmentation fault" if "SIGSEGV" in stderr else ""


_PATHS = re.compile(r"\S*/(?=[\w.-]+\.(?:cc|h):\d+)")
_BUILD_ID = re.compile(r"\b[0-9a-f]{9,}\b|\b0x[0-9a-f]+")
_NUMBER = re.compile(r"(%?[A-Za-z][\w-]*)\.\d+(?:\.\d+)*\b(?!\.\w)")
_LAYOUT = re.compile(r"(?<=\])\{[\d,]+(?::[^}]*)?\}")


def normalised(message: str) -> str:
    """The first line without what differs from run to run: ids, paths, layouts."""
    line = next((line for line in message.splitlines() if line.strip()), "").strip()
    line = _BUILD_ID.sub("", _PATHS.sub("", line))
    line = _LAYOUT.sub("", _NUMBER.sub(r"\1", line))
    line = " ".join(line.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


class State:
    """Lines of JSON, one a probe, appended as they come; a run goes on from what is there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.probes: dict[str, dict[Cell, Outcome]] = {}
        self.sides: dict[str, dict[str, dict[str, object]]] = {}  # by device, by op
        *lines, unfinished = path.read_text().split("\n") if path.exists() else [""]
        begins = '{"device": '
        if not unfinished.startswith(begins[: len(unfinished)]):
            raise ValueError(f"its last line is no probe: {unfinished[:40]!r}")
        self._unfinished = len(unfinished.encode())  # a run was ended while it wrote this
        for line in lines:
            row = json.loads(line)
            if "side" in row:
                self.sides.setdefault(row["device"], {})[row["side"]["op"]] = row["side"]
            else:
                cell = Cell(*row["cell"].split())
                self.probes.setdefault(row["device"], {})[cell] = Outcome(*row["outcome"])

    def done(self, device: Device) -> dict[Cell, Outcome]:
        """What is known of a device."""
        return self.probes.setdefault(str(device), {})

    def add(self, device: Device, probes: Iterable[Probe]) -> None:
        """Remember outcomes."""
        rows: list[dict[str, object]] = []
        for cell, outcome in probes:
            self.done(device)[cell] = outcome
            rows.append({"device": str(device), "cell": str(cell), "outcome": list(outcome)})
        self._append(rows)

    def add_side(self, device: Device, side: dict[str, object]) -> None:
        """Remember a comparison of native and fallback."""
        self.sides.setdefault(str(device), {})[str(side["op"])] = side
        self._append([{"device": str(device), "side": side}])

    def _append(self, rows: list[dict[str, object]]) -> None:
        with self._path.open("a") as file:
            if self._unfinished:
                file.truncate(file.tell() - self._unfinished)
                self._unfinished = 0
            file.write("".join(json.dumps(row) + "\n" for row in rows))
