"""Halves of an all-reduce: fusions of a whole one, of which a TPU's compiler emits only a half."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .instruction import Instruction
from .text import Computation
from .walk import reached

# These give what they take, in another form.
_FORMS = frozenset({"bitcast", "convert", "copy", "get-tuple-element", "reshape", "slice", "tuple"})


def half(computation: Computation) -> str:
    """What a fusion of this computation is, if that is half of the all-reduce in it; else "".

    reduce-scatter: all that it gives are blocks of the sum, at computed places.
    all-gather: all that is summed are zeros, with a block of data at a computed place.
    """
    if computation.root is None or computation.is_entry:
        return ""
    given = list(_origins([computation.root]))
    if given and all(one.opcode == "dynamic-slice" for one in given):
        whole = list(_origins(operand for one in given for operand in one.operands[:1]))
        return "reduce-scatter" if _are(whole, "all-reduce") else ""
    if _are(given, "all-reduce"):
        summed = list(_origins(operand for one in given for operand in one.operands))
        blocks = _are(summed, "dynamic-update-slice") and all(
            _are(list(_origins(one.operands[:1])), "broadcast", "constant") for one in summed
        )
        return "all-gather" if blocks else ""
    return ""


def _are(some: list[Instruction], *opcodes: str) -> bool:
    return bool(some) and all(one.opcode in opcodes for one in some)


def _origins(some: Iterable[Instruction]) -> Iterator[Instruction]:
    """Of what these are other forms."""
    for one in reached(some, lambda one: one.operands if one.opcode in _FORMS else ()):
        if one.opcode not in _FORMS:
            yield one
