"""What only moves data around beside the collectives of a compiled program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from .._hlo.collectives import Collective
from .._hlo.instruction import Instruction
from .._hlo.opcodes import MOVES
from .._hlo.text import Computation
from .._hlo.walk import reached
from .compiled import Compiled

# They give what they take, in other places.
_COPIES = frozenset(
    {
        "broadcast",
        "concatenate",
        "copy",
        "dynamic-slice",
        "dynamic-update-slice",
        "gather",
        "pad",
        "reverse",
        "slice",
        "transpose",
    }
)
# Beside one of the above in a fusion, these only say what goes where.
_NAMES = MOVES | {"reshape", "iota", "compare", "select", "convert", "replica-id", "partition-id"}


def around_collectives(program: Compiled) -> list[tuple[Instruction, str, Collective]]:
    """Each copy, "before" or "after", and the collective that it is for."""
    inside = opcodes_inside(program.computations)
    users: dict[Instruction, list[Instruction]] = defaultdict(list)
    for computation in program.computations:
        for one in computation.instructions:
            for operand in one.operands:
                users[operand].append(one)
    found = []
    for collective in program.finder().found():
        before = _walk(collective.first.operands, lambda one: one.operands, inside)
        after = _walk(users[collective.last], lambda one: users[one], inside)
        found += [(one, "before", collective) for one in before]
        found += [(one, "after", collective) for one in after]
    return found


def opcodes_inside(computations: Iterable[Computation]) -> dict[str, frozenset[str]]:
    """Of each computation, by name."""
    return {
        computation.name: frozenset(one.opcode for one in computation.instructions)
        for computation in computations
    }


def _walk(
    begin: Iterable[Instruction],
    further: Callable[[Instruction], Iterable[Instruction]],
    inside: dict[str, frozenset[str]],
) -> list[Instruction]:
    """The copies that are reached past nothing that computes."""
    moves = reached(
        begin, lambda one: further(one) if one.opcode in MOVES or is_copy(one, inside) else ()
    )
    return [one for one in moves if one.opcode not in MOVES and is_copy(one, inside)]


def is_copy(one: Instruction, inside: dict[str, frozenset[str]]) -> bool:
    """Whether it only moves data; `inside` are the opcodes of each computation."""
    if one.shape.endswith("[]"):
        return False
    if one.opcode == "copy":  # to another memory, in the same layout, or into another layout
        return one.layout != one.operands[0].layout
    if one.opcode in ("fusion", "call", "async-start"):
        steps = frozenset[str]().union(*(inside.get(name, frozenset()) for name in one.called))
        return bool(steps & _COPIES) and steps <= _COPIES | _NAMES
    return one.opcode in _COPIES
