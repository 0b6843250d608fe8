"""Native and fallback side by side: what each costs, as the compilers state it."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from typing import Any

from .._aot import CompiledProgram, CompilerError, collectives, compile_hlo
from . import _cpu, _pod
from ._emit import both_ends, lower
from ._grid import OPS, REDUCTIONS, Cell, Device
from ._results import counted, normalised, outcome_of

SHAPE = [1024, 1024]  # f32: 4 MiB
RULES = ("native", "fallback")
TIMEOUT_S = 300.0  # not a probe's: what is slow to compile is compared as well

_ENDS = ("-done", "-update")
# What neither computes nor moves, or is counted by its beginning.
_SILENT = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "call"}


def wanted() -> list[Cell]:
    """The calls that are compared: of the world, around a ring, or from a send to its recv.

    Those in a chain: no compiler takes the two where data gets back to a rank that sent some.
    """
    found = []
    for op, forms in OPS.items():
        form = (
            "chain" if op == "recv" else next(form for form in ("world", "ring") if form in forms)
        )
        if op != "send":
            found.append(Cell(op, "f32", "sum" if op in REDUCTIONS else "-", form, "one"))
    return found


def is_compared(device: Device) -> bool:
    """Whether the comparison is made there."""
    return device.world <= 8 or str(device) == "tpu:v5e/256"


def compare(cell: Cell, device: Device) -> dict[str, Any]:
    """{"op": ..., "native": {...}, "fallback": {...}}."""
    return {"op": cell.op, "form": cell.form, **{rule: _side(cell, device, rule) for rule in RULES}}


def emitted(cell: Cell, device: Device, rule: str) -> tuple[list[str], int, bytes]:
    """Opcodes, bytes on the wire, and the module; ValueError where there is no such form."""
    lowered = lower(cell, device, rule, [SHAPE])
    opcodes, wire, code = lowered["opcodes"], lowered["wire_bytes"], bytes(lowered["bytes"])
    # XLA:CPU has no instruction for a send, so that a recv is all of it.
    if cell.op == "recv" and device.name not in ("cpu", "pod"):
        opcodes = [*lower(cell._replace(op="send"), device, rule, [SHAPE])["opcodes"], *opcodes]
        code = both_ends(cell, device, rule, [SHAPE])
    return list(opcodes), wire, code


def _side(cell: Cell, device: Device, rule: str) -> dict[str, Any]:
    try:
        opcodes, wire, code = emitted(cell, device, rule)
    except ValueError as error:
        return {"failed": normalised(str(error))}
    side: dict[str, Any] = {"emitted": opcodes, "wire": wire}
    try:
        if device.name == "cpu":
            program = _cpu.compile_hlo(code, device.world, TIMEOUT_S)
        elif device.name == "pod":
            program = _pod.compile_hlo(code, device.world)
        else:
            program = compile_hlo(code, device.target, timeout_s=TIMEOUT_S)
    except CompilerError as error:
        outcome = outcome_of(error)
        return {**side, "failed": " ".join([outcome.result, outcome.says]).strip()}
    return {
        **side,
        "instructions": instructions(program),
        "becomes": outcome_of(program).becomes,
        "accessed": program.cost.get("bytes accessed") or _analysed(program),
        "temporary": program.memory["temporaries"],
    }


def _analysed(program: CompiledProgram) -> float:
    """Bytes accessed by XLA's own cost analysis, for compilers that do not state them."""
    xla: Any = import_module("jaxlib.xla_client")
    module = xla._xla.HloModule.from_serialized_hlo_module_proto(program.hlo)
    analysis = xla._xla.hlo_module_cost_analysis(xla.make_cpu_client(), module)
    return float(analysis["bytes accessed"])


def instructions(program: CompiledProgram) -> str:
    """What the program runs: "all-reduce, 2 fusion"."""
    everything = program.instructions()
    # On CPU threads collectives, and what several threads compute together, stand in calls.
    calls = Counter(made.called[0] for made in everything if made.opcode == "call")
    # A collective may be wrapped in a fusion or an asynchronous call.
    plain = {(made.computation, made.name): made.opcode for made in collectives(program)}
    last = {made.computation: made.opcode for made in everything}
    counts: Counter[str] = Counter()
    for made in everything:
        times = 1 if made.in_entry else calls[made.computation]
        if times == 0 or made.opcode in _SILENT or made.opcode.endswith(_ENDS):
            continue
        opcode = plain.get((made.computation, made.name), made.opcode.removesuffix("-start"))
        counts[last[made.called[0]] if opcode == "async" and made.called else opcode] += times
    return ", ".join(counted(name, n) for name, n in sorted(counts.items()))
