"""Native and fallback side by side: what each costs, as the compilers state it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .._aot import CompiledProgram, CompilerError, collectives, compile_hlo
from ._ahead import TIMEOUT_S
from ._emit import both_ends, lower
from ._grid import OPS, REDUCTIONS, Cell, Device
from ._results import counted, normalised, outcome_of

SHAPE = [1024, 1024]  # f32: 4 MiB
RULES = ("native", "fallback")

_ENDS = ("-done", "-update")
# What neither computes nor moves, or is counted by its beginning.
_SILENT = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"}


def wanted() -> list[Cell]:
    """The calls that are compared: of the world, or around a ring; send together with its recv."""
    return [
        Cell(op, "f32", "sum" if op in REDUCTIONS else "-", form, "one")
        for op, forms in OPS.items()
        for form in forms
        if form in ("world", "ring") and op != "send"
    ]


def is_compared(device: Device) -> bool:
    """Whether the comparison is made there."""
    return device.world <= 8 or str(device) == "tpu:v5e/256"


def compare(cell: Cell, device: Device) -> dict[str, Any]:
    """{"op": ..., "native": {...}, "fallback": {...}}."""
    return {"op": cell.op, "form": cell.form, **{rule: _side(cell, device, rule) for rule in RULES}}


def _side(cell: Cell, device: Device, rule: str) -> dict[str, Any]:
    try:
        lowered = lower(cell, device, rule, [SHAPE])
    except ValueError as error:
        return {"failed": normalised(str(error))}
    side: dict[str, Any] = {"emitted": list(lowered["opcodes"]), "wire": lowered["wire_bytes"]}
    if device.name == "cpu":
        return side  # torch_xla does not say what it compiles to
    code = bytes(lowered["bytes"])
    if cell.op == "recv":
        code = both_ends(cell, device, rule, [SHAPE])
    try:
        program = compile_hlo(code, device.target, timeout_s=TIMEOUT_S)
    except CompilerError as error:
        outcome = outcome_of(error)
        return {**side, "failed": " ".join([outcome.result, outcome.says]).strip()}
    return {
        **side,
        "instructions": instructions(program),
        "becomes": outcome_of(program).becomes,
        "accessed": program.cost.get("bytes accessed"),
        "temporary": program.memory["temporaries"],
    }


def instructions(program: CompiledProgram) -> str:
    """What the program runs: "all-reduce, 2 fusion"."""
    everything = program.instructions()
    # A collective may be wrapped in a fusion or an asynchronous call.
    plain = {(made.computation, made.name): made.opcode for made in collectives(program)}
    last = {made.computation: made.opcode for made in everything}
    counts: Counter[str] = Counter()
    for made in everything:
        if not made.in_entry or made.opcode in _SILENT or made.opcode.endswith(_ENDS):
            continue
        opcode = plain.get((made.computation, made.name), made.opcode.removesuffix("-start"))
        counts[last[made.called[0]] if opcode == "async" and made.called else opcode] += 1
    return ", ".join(counted(name, n) for name, n in sorted(counts.items()))
