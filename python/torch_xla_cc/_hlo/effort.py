"""How much an instruction reads, writes and multiplies, as far as its program tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .instruction import Instruction, arrays
from .opcodes import MOVES

# These read, of their first operand, as much as they give.
_LOOKING = frozenset({"dynamic-slice", "gather", "slice"})
# These look at other elements of an operand than those that they give, where it has as many.
_MIXING = frozenset(
    {"convolution", "custom-call", "dot", "fft", "reduce-window", "select-and-scatter", "sort"}
)
_FUSIONS = frozenset({"async-start", "fusion"})
_HANDING = frozenset({"bitcast", "tuple"})
# A GPU's libraries: what they work in is given too, but is no result.
_LIBRARIES = "__cu"


@dataclass(frozen=True, slots=True)
class Effort:
    """Of running something once. The bodies of loops count once, foreign code by what it takes."""

    reads: tuple[int, ...]  # bytes, of each operand
    writes: int  # bytes
    products: int  # of two numbers


@dataclass(frozen=True, slots=True)
class Efforts:
    """Of running a computation."""

    fused: Effort  # as one: what it reads of its parameters, and writes of its result
    touched: int  # bytes, by its instructions one after the other


def effort(one: Instruction, known: Mapping[str, Efforts], in_place: bool = True) -> Effort:
    """Of an instruction; `known` are the computations that it may run.

    `in_place`: what writes into a part of its operand does that, and does not copy it.
    """
    inner = [known[name] for name in one.called if name in known]
    if inner and one.opcode in ("call", "conditional", "while"):
        # What it hands over stays where it is.
        if one.opcode == "conditional":  # which branch is not known
            inner = [min(inner, key=lambda each: (each.touched, each.fused.products))]
        products = sum(each.fused.products for each in inner)
        touched = sum(each.touched for each in inner)
        return Effort((0,) * len(one.operands), touched, products)
    reads = [_bytes(operand.type) for operand in one.operands]
    writes = _bytes(one.type)
    if one.opcode == "get-tuple-element" or (one.opcode in _LOOKING and reads):
        reads[:1] = [writes]
    elif one.custom_call_target.startswith(_LIBRARIES):
        writes = sum(array.bytes for array in one.arrays[:1])
    elif in_place and (updates := _updates(one)):
        whole, first = updates
        reads[:whole] = [0] * whole
        writes = sum(reads[first : first + whole])
    if one.opcode in _FUSIONS and len(inner) == 1:
        fused = inner[0].fused
        reads = [min(pair) for pair in zip(reads, _filled(fused.reads, len(reads)), strict=True)]
        writes = min(writes, fused.writes)
    return Effort(tuple(reads), writes, one.products + sum(each.fused.products for each in inner))


def efforts(
    instructions: Sequence[Instruction],
    root: Instruction | None,
    known: Mapping[str, Efforts],
) -> Efforts:
    """Of a computation."""
    results = set() if root is None else _results(root)
    in_place = results & _may_write(instructions)
    steps = {one: effort(one, known) for one in instructions}
    copying = [one for one in instructions if _whole(one) and one not in in_place]
    made = {**steps, **{one: effort(one, known, in_place=False) for one in copying}}
    return Efforts(
        Effort(
            reads=_read(instructions, root, made),
            writes=sum(made[one].writes for one in results),
            products=sum(one.products for one in steps.values()),
        ),
        touched=sum(
            sum(own.reads) + own.writes for one, own in steps.items() if one.opcode not in MOVES
        ),
    )


def _read(
    instructions: Sequence[Instruction],
    root: Instruction | None,
    made: Mapping[Instruction, Effort],
) -> tuple[int, ...]:
    """Of each parameter, the bytes that what is wanted of the root needs."""
    wanted: Counter[Instruction] = Counter()
    if root is not None:
        wanted[root] = _bytes(root.type)
    for one in reversed(instructions):
        whole, own = _bytes(one.type), wanted[one]
        for operand, read in zip(one.operands, made[one].reads, strict=False):
            if one.opcode not in _MIXING and _elements(operand.type) == _elements(one.type):
                # Element by element: computed where it is wanted only.
                wanted[operand] += -(-read * min(own, whole) // whole) if whole else 0
            else:
                wanted[operand] += read if own else 0
    parameters = [one for one in instructions if one.opcode == "parameter"]
    taken = {one.number: min(wanted[one], _bytes(one.type)) for one in parameters}
    return tuple(taken.get(number, 0) for number in range(len(parameters)))


def _results(root: Instruction) -> set[Instruction]:
    """What gives the result: tuples are taken apart, and what is written into has been written."""
    seen = {root}
    waiting = [root]
    while waiting:
        one = waiting.pop()
        inner = one.operands
        if one.opcode not in _HANDING:
            inner = [operand for operand in inner[: _whole(one)] if _whole(operand)]
        waiting.extend(set(inner) - seen)
        seen.update(inner)
    return {one for one in seen if one.opcode not in _HANDING}


def _may_write(instructions: Iterable[Instruction]) -> set[Instruction]:
    """What writes into a part of a parameter. What writes into anything else makes that first."""
    found: set[Instruction] = set()
    for one in instructions:
        first = one.operands[0] if one.operands else None
        handed = one.opcode == "bitcast" or _whole(one) > 0
        if one.opcode == "parameter" or (handed and first in found):
            found.add(one)
    return found


def _whole(one: Instruction) -> int:
    """How many operands it writes into parts of."""
    updates = _updates(one)
    return updates[0] if updates else 0


def _updates(one: Instruction) -> tuple[int, int] | None:
    """Of what writes into a part: how many operands are written into, and the first that is put."""
    if one.opcode == "dynamic-update-slice":
        return 1, 1
    if one.opcode == "scatter":
        whole = (len(one.operands) - 1) // 2
        return whole, whole + 1
    return None


def _filled(reads: Sequence[int], size: int) -> list[int]:
    return [*reads, *[0] * size][:size]


@lru_cache(maxsize=1 << 14)
def _bytes(type: str) -> int:
    return sum(array.bytes for array in arrays(type))


@lru_cache(maxsize=1 << 14)
def _elements(type: str) -> int:
    return sum(array.elements for array in arrays(type))
