"""What was measured, as rows: the cells that are not native on a device, from where on, and why."""

from __future__ import annotations

import re
from collections import defaultdict

from ._grid import COUNTS, KINDS, LAYOUTS, LISTS, OPS, STAND_INS, TYPES, Cell, kinds_of
from ._measured import Box, Measured, box_key, boxes
from ._outcome import CRASHED, NATIVE, SLOW, TIMEOUT, WRONG, Outcome

_LONGEST = 100
_COMPILER = {
    "cpu": "XLA:CPU",
    "pod": "the pod",
    "tpu": "the TPU compiler",
    "gpu": "the GPU compiler",
}


# What the compilers' messages mean, where the first line does not say it to people.
_PHRASES = (
    ("uniform size", "it wants groups of one size"),
    ("groups all of the same sizes", "it wants groups of one size"),
    ("mode, replica grou", "it wants every rank in a group"),
    ("lowering only of Sum all reduce", "it takes no such reduction of this type"),
    ("not contain X64 element types", "it cannot split a 64 bit type in halves here"),
    ("not contain complex element types", "it takes no such reduction of this type"),
    ("Unsupported reduction computation", "it takes no such reduction of this type"),
    ("is not supported for complex", "it takes no such reduction of this type"),
    ("does not have a layout", "several operands with a channel have no layout"),
    ("for datatype", "it does not reduce this type"),
    ("HasLimited", "it has none for chips that are linked by few routes"),
    ("limited ICI routing", "it has no route between the ranks of these groups"),
    ("non-cyclical source-target", "pairs that lead back to a rank"),
    ("not suppored by NCCL", "NCCL has no such type"),
    ("not implemented on TPU", "it does not implement it"),
    ("not supported by XLA:CPU", "it does not implement it"),
    ("requires a single operand", "StableHLO has none of several operands"),
    ("replica id -1", "it wants groups of one size"),
    ("was given -1", "it wants groups of one size"),
    ("must be on different devices", "it takes none between replicas"),
    ("C128 is not supported", "it has no such type"),
)
_AS = re.compile(r" ?\(as \w+\)$")
_CONTEXT = re.compile(r"^during context \[[^]]*\]: |RET_CHECK failure \S+\) ")

# A limit of XLA:CPU's ranks and not of its compiler: it is not one of partitions.
OF_THREADS = "ranks on threads run a program each, and never meet in this instruction"


def why(device: str, outcome: Outcome) -> str:
    """The reason, for people."""
    compiler = _COMPILER[device.split(":")[0]]
    says = _CONTEXT.sub("", _AS.sub("", outcome.says))
    if outcome.result == CRASHED:
        if says.startswith("the ranks never meet"):
            return OF_THREADS
        return f"{compiler} crashes on it"
    if outcome.result == TIMEOUT:
        return f"{compiler} does not come to an end within 60 s"
    if outcome.result == SLOW:
        return f"{compiler} takes {outcome.says}"
    if outcome.result == WRONG:
        return f"{compiler} computes something else{says and ': '}{says}"
    says = next((phrase for part, phrase in _PHRASES if part in says), says)
    return f"{compiler} refuses: {says}"[:_LONGEST].rstrip()


# Compiled, but by HLO's definition something else than docs/spec.md says.
_MEANS_ANOTHER = {("collective_broadcast", "partial"): "zeros on a rank in no group"}
# Compiled, but so slowly that the fallback is the better form: from how many ranks on, and why.
# libtpu 0.0.21 on two cores, f32[1024,1024]: 1 s for each in a program of 16 at 128 chips, 34 s at
# 256; 0.04 s and 0.4 s in two stages. A mesh routes by rows and columns in either form.
_SLOW = {("tpu:v5e", "all_to_all", "world"): (128, "seconds to minutes to compile each of it")}


def outcome_in(measured: Measured, device: str, world: int, cell: Cell) -> Outcome | None:
    """The outcome of a cell; where its type was not measured, that of the type it is like."""
    cells = measured.cells[f"{device}/{world}"]
    found = cells.get(cell)
    if found is None and cell.type in STAND_INS:
        found = cells.get(cell._replace(type=STAND_INS[cell.type]))
    if found is None or found.result == NATIVE:
        # Other groups of the form count as well.
        for layout in LAYOUTS:
            like = Cell(cell.op, "f32", "-" if cell.kind == "-" else "sum", layout, "one")
            other = cells.get(like) if layout.startswith(f"{cell.form}:") else None
            if other is None or other.result == NATIVE:
                continue
            # What takes long is the size of the group: one as large as a world counts as a world,
            # see Holds in lowering/capability/table.cc, and smaller ones are no worse for it.
            if (layout, other.result) == ("scrambled:world", TIMEOUT):
                of_world = outcome_in(measured, device, world, like._replace(form="world"))
                if of_world is not None and of_world.result != NATIVE:
                    continue
            return other
    if found is None or found.result != NATIVE:
        return found
    if another := _MEANS_ANOTHER.get((cell.op, cell.form)):
        return Outcome(WRONG, says=another)
    least, how = _SLOW.get((device, cell.op, cell.form), (world + 1, ""))
    return Outcome(SLOW, says=how) if world >= least else found


def failing_from(measured: Measured, device: str, cell: Cell) -> tuple[int, Outcome] | None:
    """From how many ranks on a cell counts as not native, and why; 0 is always.

    Cautious: what fails at 64 and neither at 8 nor at 256 fails from 9 on.
    """
    good = -1
    for world in measured.worlds(device):
        outcome = outcome_in(measured, device, world, cell)
        if outcome is not None and outcome.result != NATIVE:
            return (world if outcome.result == SLOW else good + 1), outcome
        good = world
    return None


def exceptions(measured: Measured, device: str) -> dict[Cell, tuple[int, str]]:
    """The cells that are not native: from which world on, and why."""
    smallest = measured.cells[f"{device}/{measured.worlds(device)[0]}"]
    unknown = {
        cell.type
        for cell, outcome in smallest.items()
        if cell.op == "parameter" and outcome.result != NATIVE
    }
    found = {}
    for cell in smallest:
        # A type that no program takes is told by the row of its parameter alone.
        if ":" in cell.form or (cell.type in unknown and cell.op != "parameter"):
            continue
        if failure := failing_from(measured, device, cell):
            found[cell] = failure[0], why(device, failure[1])
    return found


def rows(measured: Measured, device: str) -> list[tuple[str, Box, int, str]]:
    """The exceptions as (op, cells, from which world on, why), few of them.

    A row may hold cells that do not exist, or of a type that no program takes.
    """
    by_reason: dict[tuple[str, int, str], list[tuple[str, ...]]] = defaultdict(list)
    found = exceptions(measured, device)
    for cell, (least, reason) in found.items():
        by_reason[cell.op, least, reason].append(cell[3:] + cell[2:3] + cell[1:2])
    unknown = {cell.type for cell in found if cell.op == "parameter"}
    return sorted(
        (
            (op, _widened(op, box, unknown), least, reason)
            for (op, least, reason), points in by_reason.items()
            for box in boxes(points)
        ),
        key=lambda row: (list(FORMS).index(row[0]), row[2], row[3], box_key(row[1])),
    )


FORMS: dict[str, tuple[str, ...]] = {"parameter": ("-",), **OPS}


def _widened(op: str, box: Box, unknown: set[str]) -> Box:
    """With every axis that holds all there is holding all."""
    forms, counts, kinds, types = box
    alive = {
        name
        for name in TYPES
        if name not in unknown and (kinds == {"-"} or kinds & set(kinds_of(name)))
    }
    if op != "parameter" and types >= alive:
        types = frozenset(TYPES)
    if op not in LISTS:
        counts = frozenset(COUNTS)
    if kinds == {"-"} or not any(set(kinds_of(name)) - kinds for name in types - unknown):
        kinds = frozenset(KINDS)
    return forms, counts, kinds, types
