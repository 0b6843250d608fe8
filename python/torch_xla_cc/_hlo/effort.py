"""How much an instruction reads, writes and multiplies, as far as its program tells."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .instruction import Array, Instruction, arrays
from .text import Computation

# These read, of their first operand, as much as they give.
_LOOKING = frozenset({"dynamic-slice", "gather", "slice"})
# These write, in place, as much as this operand of theirs has.
_IN_PLACE = {"dynamic-update-slice": 1, "scatter": 2}
_PRODUCTS = frozenset({"convolution", "dot"})
_PRODUCT_CALLS = "__cublas"  # custom calls: a GPU's matrix products


@dataclass(frozen=True, slots=True)
class Effort:
    """Of running something once. The bodies of loops count once, foreign code by what it takes."""

    reads: tuple[int, ...]  # bytes, of each operand
    writes: int  # bytes
    products: int  # of two numbers, about and not too many


def effort(one: Instruction, known: Mapping[str, Effort]) -> Effort:
    """Of an instruction; `known` are the computations that it may run."""
    reads = [_bytes(operand) for operand in one.operands]
    writes = _bytes(one)
    if one.opcode in _LOOKING:
        reads[:1] = [writes]
    elif place := _IN_PLACE.get(one.opcode):
        reads[0], writes = 0, sum(reads[place : place + 1])
    inner = [known[name] for name in one.called if name in known]
    if one.opcode in ("fusion", "call", "async-start") and len(inner) == 1:
        reads = [min(pair) for pair in zip(reads, inner[0].reads, strict=False)]
        writes = min(writes, inner[0].writes)
    return Effort(tuple(reads), writes, _products(one) + sum(each.products for each in inner))


def effort_of(computation: Computation, known: Mapping[str, Effort]) -> Effort:
    """Of a computation: what it reads of its parameters, and writes of its result."""
    wanted: Counter[Instruction] = Counter()  # bytes
    made = {one: effort(one, known) for one in computation.instructions}
    root = computation.root
    if root is not None:
        wanted[root] = _bytes(root)
    for one in reversed(computation.instructions):
        part = _part(wanted[one], one)
        for operand, read in zip(one.operands, made[one].reads, strict=False):
            # What is computed element by element is computed where it is wanted only.
            alike = _elements(operand) == _elements(one)
            wanted[operand] += math.ceil(read * part) if alike else read * (part > 0)
    taken = {
        one.number: min(wanted[one], _bytes(one))
        for one in computation.instructions
        if one.opcode == "parameter"
    }
    return Effort(
        reads=tuple(taken.get(number, 0) for number in range(max(taken, default=-1) + 1)),
        writes=_written(root, made) if root is not None else 0,
        products=sum(one.products for one in made.values()),
    )


def _written(one: Instruction, made: Mapping[Instruction, Effort]) -> int:
    if one.opcode == "tuple":
        return sum(_written(operand, made) for operand in one.operands)
    if one.opcode == "bitcast":
        return _written(one.operands[0], made)
    return made[one].writes


def _part(wanted: int, one: Instruction) -> float:
    """How much of it."""
    whole = _bytes(one)
    return min(1.0, wanted / whole) if whole else float(wanted > 0)


def _products(one: Instruction) -> int:
    """Of two matrices, by what they and their product have: the root of [m,k] [k,n] [m,n].

    Of many such pairs, [b,m,k] [b,k,n] [b,m,n], it is `b` times the root without it. Which dimension
    that is is not known here: the largest that all have may be larger, and then these are fewer.
    """
    is_call = one.custom_call_target.startswith(_PRODUCT_CALLS)
    if not (is_call or one.opcode in _PRODUCTS) or len(one.operands) < 2:
        return 0
    three = [_arrays(some.type)[:1] for some in (*one.operands[:2], one)]
    shapes = [[dim for dim in array.dims if dim > 1] for some in three for array in some]
    if len(shapes) < 3:
        return 0
    left, right, given = map(Counter, shapes)
    shared = sorted((left & right & given).elements(), reverse=True)
    pairs = math.prod(shared[: max(0, min(map(len, shapes)) - 2)])
    return math.isqrt(math.prod(map(math.prod, shapes)) // pairs)


def _bytes(one: Instruction) -> int:
    return sum(array.bytes for array in _arrays(one.type))


def _elements(one: Instruction) -> list[int]:
    return [array.elements for array in _arrays(one.type)]


@lru_cache(maxsize=1 << 14)
def _arrays(type: str) -> Sequence[Array]:
    return arrays(type)
