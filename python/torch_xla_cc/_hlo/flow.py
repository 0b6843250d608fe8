"""A program as one graph of values: calls are entered, tuples are taken apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from .instruction import Instruction
from .text import Computation
from .walk import reached

# Computations that call another twice each would take for ever.
_MOST_STEPS = 500_000
_DEEPEST = 50  # calls in calls


class TooLargeError(ValueError):
    """A program that is too large to be looked at."""


@dataclass(eq=False, slots=True)
class Value:
    """What an instruction gives, in one of the places that its computation is called from."""

    instruction: Instruction
    operands: tuple[Value, ...]
    program: int  # values of one computation that nothing calls, and of what it calls, have one
    users: list[Value] = field(default_factory=list)
    is_result: bool = False  # of its program

    @property
    def opcode(self) -> str:
        return self.instruction.opcode


_Parts: TypeAlias = "Value | tuple[_Parts, ...]"  # a value, or a tuple of them


def values(computations: Sequence[Computation]) -> list[Value]:
    """All of them, each after its operands. TooLargeError if that takes too long.

    A loop's body and a fusion are programs of their own: their parameters come from nowhere.
    """
    called = {
        name
        for computation in computations
        for one in computation.instructions
        if one.opcode == "call"
        for name in one.called
    }
    graph = _Graph()
    for number, computation in enumerate(computations):
        # Callees come first: one that is not known yet would call itself.
        graph.known[computation.name] = computation
        if computation.name not in called:
            graph.program = number
            for value in graph.flat([graph.enter(computation, (), 0)]):
                value.is_result = True
    return graph.values


class _Graph:
    def __init__(self) -> None:
        self.values: list[Value] = []
        self.known: dict[str, Computation] = {}
        self.program = 0
        self._steps = 0

    def enter(self, computation: Computation, arguments: Sequence[_Parts], depth: int) -> _Parts:
        """What a computation gives, with these arguments; its own parameters if there are none."""
        made: dict[Instruction, _Parts] = {}
        for one in computation.instructions:
            self._step()
            operands = [made[operand] for operand in one.operands]
            made[one] = self._parts(one, operands, arguments, depth)
        root = computation.root
        return made[root] if root is not None else ()

    def flat(self, pending: Sequence[_Parts]) -> tuple[Value, ...]:
        """The values in tuples, in order."""
        found: list[Value] = []
        left = list(reversed(pending))
        while left:
            self._step()
            parts = left.pop()
            if isinstance(parts, Value):
                found.append(parts)
            else:
                left += reversed(parts)
        return tuple(found)

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise TooLargeError(f"a program that takes more than {_MOST_STEPS:,} steps")

    def _parts(
        self, one: Instruction, operands: list[_Parts], arguments: Sequence[_Parts], depth: int
    ) -> _Parts:
        if one.opcode == "parameter" and 0 <= one.number < len(arguments):
            return arguments[one.number]
        if one.opcode == "tuple":
            return tuple(operands)
        if one.opcode == "get-tuple-element" and operands:
            whole = operands[0]
            if isinstance(whole, tuple) and 0 <= one.number < len(whole):
                return whole[one.number]
        if one.opcode == "call" and one.called and depth < _DEEPEST:
            callee = self.known.get(one.called[0])
            if callee is not None and callee.root is not None:
                return self.enter(callee, operands, depth + 1)
        value = Value(one, self.flat(operands), self.program)
        for operand in value.operands:
            operand.users.append(value)
        self.values.append(value)
        return value


def depends_on(value: Value, opcodes: frozenset[str]) -> bool:
    """Whether it is computed of what one of these gives."""
    return any(one.opcode in opcodes for one in sources(value))


def sources(value: Value) -> Iterator[Value]:
    """It, and all that it is computed of."""
    return reached([value], lambda one: one.operands)
