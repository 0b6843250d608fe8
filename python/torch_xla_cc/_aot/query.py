"""Questions about a compiled program: which collectives it has, and what comes before them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from .program import CompiledProgram, Instruction

COLLECTIVES = frozenset(
    {
        "all-gather",
        "all-reduce",
        "all-to-all",
        "collective-broadcast",
        "collective-permute",
        "ragged-all-to-all",
        "recv",
        "reduce-scatter",
        "send",
    }
)

# Instructions that run a called computation as part of themselves.
_WRAPPERS = frozenset({"fusion", "async-start"})

# Instructions that compute nothing: they name, group or move data. A TPU compiler moves a tensor
# into fast memory by asynchronous slices, and takes those together by a ConcatBitcast.
_MOVES = frozenset(
    {
        "add-dependency",
        "after-all",
        "async-done",
        "async-update",
        "bitcast",
        "constant",
        "copy-done",
        "copy-start",
        "get-tuple-element",
        "opt-barrier",
        "parameter",
        "tuple",
    }
)
_MOVING_CALLS = frozenset({"ConcatBitcast"})


def collectives(program: CompiledProgram) -> list[Instruction]:
    """The collectives that the program runs, one for each, whatever form they have.

    A pair of start and done counts as one, as does a fusion or an asynchronous call of a
    collective: all of them come with the plain opcode, the operands of the first instruction and
    the shape of the last.
    """
    bodies = _bodies(program)
    wrapped = {
        name for body in bodies.values() for i in body if i.opcode in _WRAPPERS for name in i.called
    }
    found: dict[Instruction, Instruction] = {}
    for name, body in bodies.items():
        for instruction in body if name not in wrapped else ():
            if opcode := _collective(instruction, bodies):
                found[instruction] = replace(instruction, opcode=opcode)
            elif instruction.opcode.endswith("-done") and instruction.operands[0] in found:
                start = instruction.operands[0]
                found[start] = replace(found[start], shape=instruction.shape)
    return list(found.values())


def elementwise_before(program: CompiledProgram, collective: Instruction) -> list[Instruction]:
    """The passes over data between the parameters of a program and one of its `collectives`.

    That is each instruction on the way which computes, or copies into another layout, or is a
    fusion; not what only moves data to another memory, not scalars, not other collectives.
    """
    bodies = _bodies(program)
    found: list[Instruction] = []
    seen: set[Instruction] = set()
    pending = list(collective.operands)
    while pending:
        instruction = pending.pop()
        if instruction not in seen:
            seen.add(instruction)
            pending += instruction.operands
            if _is_pass(instruction, bodies):
                found.append(instruction)
    return found


def _bodies(program: CompiledProgram) -> dict[str, list[Instruction]]:
    """The instructions of each computation."""
    bodies: dict[str, list[Instruction]] = defaultdict(list)
    for instruction in program.instructions():
        bodies[instruction.computation].append(instruction)
    return bodies


def _collective(instruction: Instruction, bodies: dict[str, list[Instruction]]) -> str | None:
    """The plain opcode, if the instruction is a collective or begins one."""
    opcode = instruction.opcode.removesuffix("-start")
    if opcode in COLLECTIVES:
        return opcode
    if instruction.opcode not in _WRAPPERS:
        return None
    inner = {i.opcode for name in instruction.called for i in bodies[name]}
    # A TPU compiler writes either half of an all-reduce as a fusion of a whole one: of zeros with
    # one block of data, or of which one block only is used. What it emits is the half.
    if "all-reduce" in inner and "dynamic-update-slice" in inner:
        return "all-gather"
    if "all-reduce" in inner and "dynamic-slice" in inner:
        return "reduce-scatter"
    return next(iter(sorted(inner & COLLECTIVES)), None)


def _is_pass(instruction: Instruction, bodies: dict[str, list[Instruction]]) -> bool:
    opcode = instruction.opcode
    if opcode == "copy":
        return instruction.layout != instruction.operands[0].layout
    if opcode == "async-start":
        inner = {i.opcode for name in instruction.called for i in bodies[name]}
        return not inner <= _MOVES | COLLECTIVES | {"copy", "slice"}
    return not (
        opcode in _MOVES
        or instruction.custom_call_target in _MOVING_CALLS
        or instruction.shape.endswith("[]")
        or opcode.removesuffix("-done") in COLLECTIVES
        or _collective(instruction, bodies)
    )
