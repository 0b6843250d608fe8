"""measured.json: every outcome with the versions it came from, small and easy to compare.

Cells that came out alike stand in one row: [forms, counts, kinds, types, outcome], of which the
first four are sets and the last is a number in the list of outcomes. A kind that a type has not is
no cell, also where a row holds both.
"""

from __future__ import annotations

import datetime
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._runtime.versions import installed
from ._grid import (
    COUNTS,
    DEVICES,
    GROUP_FORMS,
    KINDS,
    LAYOUTS,
    OPS,
    PAIR_FORMS,
    TYPES,
    Cell,
    kinds_of,
)
from ._outcome import Outcome

if TYPE_CHECKING:
    from ._results import State  # needs protobuf, as probing does and reading does not

PATH = Path(__file__).with_name("measured.json")
PACKAGES = ("torch_xla", "libtpu", "jax-cuda12-pjrt", "jaxlib")

# In which order the members of a set are written.
_ORDER = {
    name: i
    for i, name in enumerate(
        ["-", *GROUP_FORMS, *PAIR_FORMS, *LAYOUTS, *COUNTS, *KINDS, *sorted(TYPES)]
    )
}
_OPS = ("parameter", *OPS)

Box = tuple[frozenset[str], ...]


def boxes(points: Iterable[tuple[str, ...]]) -> list[Box]:
    """Points (form, count, kind, type) as few products of sets.

    A product may hold points that do not exist, such as the "and" of an f32.
    """
    wanted = set(points)
    found = _merged([tuple(frozenset([value]) for value in point) for point in wanted], 3)
    joined: list[Box] = []
    for box in sorted(found, key=box_key):
        for i, other in enumerate(joined):
            both = tuple(a | b for a, b in zip(box, other, strict=True))
            if box[:2] == other[:2] and all(
                point in wanted for point in product(*both) if _exists(point)
            ):
                joined[i] = both
                break
        else:
            joined.append(box)
    return sorted(_merged(_merged(joined, 1), 0), key=box_key)


def _merged(found: list[Box], axis: int) -> list[Box]:
    """Boxes that differ in one axis only, as one."""
    merged: dict[Box, frozenset[str]] = defaultdict(frozenset)
    for box in found:
        merged[box[:axis] + box[axis + 1 :]] |= box[axis]
    return [(*rest[:axis], values, *rest[axis:]) for rest, values in merged.items()]


def _exists(point: tuple[str, ...]) -> bool:
    _, _, kind, type_name = point
    return kind == "-" or kind in kinds_of(type_name)


def box_key(box: Box) -> list[list[int]]:
    """For sorting."""
    return [[_ORDER[value] for value in ordered(values)] for values in box]


def ordered(values: Iterable[str]) -> list[str]:
    """Forms, types and so on in the order of all documents."""
    return sorted(values, key=lambda value: _ORDER[value])


@dataclass
class Measured:
    """What measured.json holds."""

    versions: dict[str, str]
    date: str
    # By device as "tpu:v5e/8".
    cells: dict[str, dict[Cell, Outcome]]
    sides: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def keep(self, old: Measured) -> None:
        """Take over the devices that this one has not, if they are of the same versions."""
        if old.versions == self.versions:
            if not self.cells:  # native and fallback were compared, and nothing was probed
                self.date = old.date
            self.cells = dict(sorted({**old.cells, **self.cells}.items()))
            self.sides = dict(sorted({**old.sides, **self.sides}.items()))

    def worlds(self, device: str) -> list[int]:
        """The numbers of ranks that a device was measured with."""
        return sorted(
            int(name.split("/")[1]) for name in self.cells if name.startswith(device + "/")
        )

    def devices(self) -> list[str]:
        """cpu, tpu:v5e, ..."""
        names = {name.split("/")[0] for name in self.cells}
        return sorted(names, key=lambda name: (name.split(":")[0], name))


def from_state(state: State) -> Measured:
    """What a run has found, in whatever order it has."""
    known = [str(device) for device in DEVICES]
    return Measured(
        versions={package: installed(package) or "none" for package in PACKAGES},
        date=datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat(),
        cells={name: state.probes[name] for name in sorted(known) if state.probes.get(name)},
        sides={
            name: list(state.sides[name].values())
            for name in sorted(known)
            if state.sides.get(name)
        },
    )


def save(measured: Measured, path: Path = PATH) -> None:
    """Write the file: a line a row, in an order that depends on nothing but the content."""
    used = sorted({outcome for cells in measured.cells.values() for outcome in cells.values()})
    number = {outcome: i for i, outcome in enumerate(used)}
    lines = ["{", f' "date": {json.dumps(measured.date)},']
    lines += [f' "versions": {json.dumps(measured.versions)},', ' "outcomes": [']
    lines += [_list([f"  {json.dumps(outcome)}" for outcome in used]), " ],"]
    lines += [
        ' "cells": {',
        ",\n".join(_device_lines(measured.cells, number)),
        " },",
        ' "sides": {',
    ]
    sides = [
        f"  {json.dumps(name)}: [\n{_list([f'   {json.dumps(row)}' for row in rows])}\n  ]"
        for name, rows in measured.sides.items()
    ]
    path.write_text("\n".join([*lines, _list(sides), " }", "}"]) + "\n")


def _list(lines: list[str]) -> str:
    return ",\n".join(lines)


def _device_lines(
    cells: Mapping[str, dict[Cell, Outcome]], number: dict[Outcome, int]
) -> list[str]:
    devices = []
    for name, outcomes in cells.items():
        ops = []
        for op in _OPS:
            rows = []
            for outcome in sorted(set(outcomes.values())):
                points = [
                    (cell.form, cell.number, cell.kind, cell.type)
                    for cell, its in outcomes.items()
                    if cell.op == op and its == outcome
                ]
                rows += [
                    json.dumps([*(" ".join(ordered(axis)) for axis in box), number[outcome]])
                    for box in boxes(points)
                ]
            if rows:
                ops.append(f'   "{op}": [\n{_list([f"    {row}" for row in rows])}\n   ]')
        devices.append(f"  {json.dumps(name)}: {{\n{_list(ops)}\n  }}")
    return devices


def load(path: Path = PATH) -> Measured:
    """Read the file."""
    raw = json.loads(path.read_text())
    outcomes = [Outcome(*outcome) for outcome in raw["outcomes"]]
    cells = {
        name: {
            Cell(op, type_name, kind, form, count): outcomes[row[4]]
            for op, rows in ops.items()
            for row in rows
            for form, count, kind, type_name in product(*(axis.split() for axis in row[:4]))
            if _exists((form, count, kind, type_name))
        }
        for name, ops in raw["cells"].items()
    }
    return Measured(raw["versions"], raw["date"], cells, raw["sides"])
