"""all_gathers of a dimension that a compiler can only gather as the outermost."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from ..._hlo import flow
from ..._hlo.collectives import Collective
from ..._hlo.instruction import Instruction
from ..._hlo.opcodes import MOVES
from ..._hlo.walk import reached
from ..copies import is_copy, opcodes_inside
from ..rows import how
from .study import LEAST_BYTES, Advice, Study

_PAIRS = ("-start", "-done")
_ASKED = re.compile(r"^all_gather\(dim=(\d+)")


def transposed(study: Study) -> Iterator[Advice]:
    """all_gather of an inner dimension = transpose ; all_gather of the outermost ; transpose."""
    issued = {one.collective.source for one in study.of("all-gather")}
    inside = opcodes_inside(study.computations_after)
    found: dict[Collective, list[Instruction]] = defaultdict(list)
    for value, one in study.compiled:
        if one.opcode == "all-gather" and one.source in issued and _is_turned(one):
            found[one] += _turns(value, one, inside)
    for one, turns in found.items():
        saved = sum(2 * turn.arrays[0].bytes for turn in turns)
        if saved < LEAST_BYTES:
            continue
        dim = _dim(one)
        call = how(one.source)[0].partition("(")[0] or "all-gather"
        shape = f" of {one.operands[0]}" if dim == one.dimensions[0] else ""
        text = (
            f"{call}{shape} in dimension {dim}: the compiler gathers outermost dimensions only "
            f"there, and transposes {_sides(turns, one)}. Keep the tensor with that dimension "
            "first, gather with dim=0, and let what uses it take it so."
        )
        yield Advice("transpose", text, ((one.source.file, one.source.line),), saved, "memory")


def _dim(one: Collective) -> int:
    """The dimension that was asked for: on a TPU it may have moved (lowering/rules/kept.h)."""
    asked = _ASKED.search(how(one.source)[0])
    return int(asked[1]) if asked else one.dimensions[0]


def _is_turned(one: Collective) -> bool:
    """Whether the gathered dimension is an inner one, and lies outermost in memory."""
    if len(one.operands) != 1 or not one.dimensions:
        return False
    if _dim(one) != one.dimensions[0]:
        return True
    order = one.last.layout.partition(":")[0].split(",")
    dim = one.dimensions[0]
    outer = [int(n) for n in reversed(order) if n.isdecimal()]
    sizes = one.results[0].dims if one.results else ()
    wide = [n for n in outer if n < len(sizes) and sizes[n] > 1]
    return math.prod(sizes[:dim]) > 1 and wide[:1] == [dim]


def _turns(
    value: flow.Value, one: Collective, inside: dict[str, frozenset[str]]
) -> list[Instruction]:
    """The transposes next to it: passes that give the same elements in another order."""
    done = value
    while done.instruction is not one.last:
        done = next((user for user in done.users if user.opcode.endswith(_PAIRS)), value)
        if done is value:
            return []
    before = _nearest(value.operands, lambda one: one.operands, inside)
    after = _nearest(done.users, lambda one: one.users, inside)
    sizes = one.operands[0].elements, one.results[0].elements
    found = [turn for turn in before if turn.arrays[0].elements == sizes[0]]
    return found + [turn for turn in after if turn.arrays[0].elements == sizes[1]]


def _nearest(
    begin: Sequence[flow.Value],
    further: Callable[[flow.Value], Sequence[flow.Value]],
    inside: dict[str, frozenset[str]],
) -> list[Instruction]:
    near = reached(begin, lambda one: further(one) if one.opcode in MOVES else ())
    passes = [one.instruction for one in near if one.opcode not in MOVES]
    return [one for one in passes if one.arrays and is_copy(one, inside)]


def _sides(turns: list[Instruction], one: Collective) -> str:
    sizes = [turn.arrays[0].elements for turn in turns]
    sides = [
        side
        for side, array in (("before", one.operands[0]), ("after", one.results[0]))
        if array.elements in sizes
    ]
    return " and ".join(sides)
