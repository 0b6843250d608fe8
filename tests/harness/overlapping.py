"""Which collectives of a compiled program run beside matmuls.

By the schedule of the program, and also where a TPU's compiler has put a collective into fusions
with matmuls: such a one begins and ends in fusions of its own, and others between carry it on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from torch_xla_cc import _aot
from torch_xla_cc._hlo import traffic
from torch_xla_cc._hlo.opcodes import COLLECTIVES

_MULTIPLY = ("dot", "convolution")
_GEMM = "__cublas"  # how custom calls of a GPU that multiply begin
_START, _DONE = "async-collective-start", "async-collective-done"


class Found(NamedTuple):
    """A collective of a compiled program."""

    opcode: str
    beside: bool  # matmuls, while it runs
    bytes: int  # that come to a rank


def found(program: Any, ranks: int) -> list[Found]:
    """The collectives of a CompiledProgram, in each computation in the order they begin."""
    multiplies: set[str] = set()  # computations
    inner: dict[str, Any] = {}  # the collective of a fused computation
    lines: dict[str, list[bool]] = {}  # of a computation, which of its instructions multiply
    for computation in program.computations():
        which = [_multiplies(one, multiplies) for one in computation.instructions]
        lines[computation.name] = which
        if any(which):
            multiplies.add(computation.name)
        for one in computation.instructions:
            if one.opcode in COLLECTIVES or any(name in inner for name in one.called):
                inner.setdefault(computation.name, one)
    made = []
    running: dict[Any, list[bool]] = {}  # by what has begun it, what has carried it on
    for one in _aot.collectives(program):
        which = lines[one.computation]
        beside = any(which[one.begins : one.ends + 1])
        if one.name.startswith(_START):
            running[one.first] = []
            continue
        start = _start(one.first)
        if start in running and one.first.opcode == "fusion":
            running[start].append(beside)
            if not one.name.startswith(_DONE):
                continue
            beside = any(running.pop(start))
        if one.first.opcode == "fusion":
            whole = one.first
            while whole.opcode not in COLLECTIVES:
                whole = next(inner[name] for name in whole.called if name in inner)
            one = replace(one, first=whole, last=whole)
        made.append(Found(one.opcode, beside, round(traffic.received(one, ranks))))
    return made


def _start(one: Any) -> Any:
    """What has begun the collective that a fusion carries on: its state comes first."""
    while one.operands and not one.name.startswith(_START):
        one = one.operands[0]
        if one.opcode not in ("get-tuple-element", "fusion", "bitcast"):
            break
    return one


def _multiplies(one: Any, computations: set[str]) -> bool:
    return (
        one.opcode in _MULTIPLY
        or one.custom_call_target.startswith(_GEMM)
        or any(name in computations for name in one.called)
    )
