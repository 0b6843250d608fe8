"""The collectives of a module, one for each, whatever form a compiler has given it."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field

from .instruction import Array, Groups, Instruction, Source, arrays
from .opcodes import COLLECTIVES, MOVES, MOVING_CALLS, WRAPPERS, plain
from .text import Computation
from .walk import reached

_MOST_MEANWHILE = 1000


@dataclass(eq=False, slots=True)
class Collective:
    """A collective that a program runs. A pair of start and done is one, and so is a fusion."""

    first: Instruction = field(repr=False)  # the whole of it, or its start
    last: Instruction = field(repr=False)  # the same, or its done
    opcode: str  # without -start
    groups: Groups | None  # () is all devices, as one group
    pairs: tuple[tuple[int, int], ...] | None
    channel_id: int | None
    dimensions: tuple[int, ...]
    source: Source
    # Where it begins and ends among the instructions of its computation, as they are scheduled.
    begins: int = 0
    ends: int = 0
    # What computes between start and done, the first of it if that is much.
    meanwhile: list[Instruction] = field(default_factory=list, repr=False)

    @property
    def name(self) -> str:
        return self.first.name

    @property
    def computation(self) -> str:
        return self.first.computation

    @property
    def in_entry(self) -> bool:
        return self.first.in_entry

    @property
    def shape(self) -> str:
        return self.last.shape

    @property
    def asynchronous(self) -> bool:
        return self.first is not self.last

    @property
    def operands(self) -> tuple[Array, ...]:
        return tuple(array for operand in self.first.operands for array in operand.arrays)

    @property
    def operand_bytes(self) -> int:
        return sum(array.bytes for array in self.operands)

    @property
    def results(self) -> tuple[Array, ...]:
        return arrays(self.last.type)


class Finder:
    """Takes computations as they come, callees first, and keeps of them what collectives need."""

    def __init__(self, whole: bool = True) -> None:
        self._whole = whole  # else passes_before has nothing to go by, and memory stays small
        self._opcodes: dict[str, frozenset[str]] = {}  # of each computation
        self._found: dict[str, list[Collective]] = {}  # in each computation
        self._wrapped: set[str] = set()
        self.lengths: dict[str, int] = {}  # instructions of each computation

    def add(self, computation: Computation) -> None:
        found: dict[Instruction, Collective] = {}
        running: dict[Instruction, Collective] = {}  # by start, or what goes on with it
        computing: list[int] = []  # places of what computes
        for place, instruction in enumerate(computation.instructions):
            if instruction.opcode in WRAPPERS:
                self._wrapped.update(instruction.called)
            begun = instruction.operands[0] if instruction.operands else None
            if begun in running and instruction.opcode.endswith(("-done", "-update")):
                collective = running.pop(begun)
                if instruction.opcode.endswith("-update"):
                    running[instruction] = collective
                else:
                    collective.last = instruction
                    collective.ends = place
                    first = bisect(computing, collective.begins)
                    collective.meanwhile = [
                        computation.instructions[at]
                        for at in computing[first : first + _MOST_MEANWHILE]
                    ]
            elif opcode := self._opcode(instruction):
                made = self._made(instruction, opcode)
                made.begins = made.ends = place
                found[instruction] = made
                if instruction.opcode.endswith("-start") or opcode in ("send", "recv"):
                    running[instruction] = made
            elif self.computes(instruction):
                computing.append(place)
        if not self._whole:
            for collective in found.values():
                for operand in collective.first.operands:
                    operand.operands = operand.operands if operand in found else ()
        self._found[computation.name] = list(found.values())
        self.lengths[computation.name] = len(computation.instructions)
        self._opcodes[computation.name] = frozenset(i.opcode for i in computation.instructions)

    def found(self) -> list[Collective]:
        """Those of all computations that are no part of an instruction."""
        return [
            collective
            for name, some in self._found.items()
            if name not in self._wrapped
            for collective in some
        ]

    def _opcode(self, instruction: Instruction) -> str:
        """The plain opcode, if the instruction is a collective or begins one."""
        opcode = plain(instruction.opcode)
        if opcode in COLLECTIVES:
            return opcode
        if instruction.opcode not in WRAPPERS:
            return ""
        inner = self._inner(instruction)
        # A TPU compiler writes either half of an all-reduce as a fusion of a whole one: of zeros
        # with one block of data, or of which one block only is used. What it emits is the half.
        if "all-reduce" in inner and "dynamic-update-slice" in inner:
            return "all-gather"
        if "all-reduce" in inner and "dynamic-slice" in inner:
            return "reduce-scatter"
        return min(inner & COLLECTIVES, default="")

    def _inner(self, instruction: Instruction) -> frozenset[str]:
        none: frozenset[str] = frozenset()
        return none.union(*(self._opcodes.get(name, none) for name in instruction.called))

    def _made(self, instruction: Instruction, opcode: str) -> Collective:
        of = instruction
        if plain(instruction.opcode) not in COLLECTIVES:  # what it wraps knows the groups
            inner = [one for name in instruction.called for one in self._found.get(name, ())]
            of = inner[0].first if inner else instruction
        return Collective(
            first=instruction,
            last=instruction,
            opcode=opcode,
            groups=of.groups,
            pairs=of.pairs,
            channel_id=of.channel_id,
            dimensions=of.dimensions,
            source=instruction.source if instruction.source.op_name else of.source,
        )

    def computes(self, instruction: Instruction) -> bool:
        """Whether it is a pass over data: it computes, or copies into another layout.

        Not what only moves data to another memory, not scalars, not collectives.
        """
        opcode = instruction.opcode
        if opcode == "copy":
            return instruction.layout != instruction.operands[0].layout
        if opcode == "async-start":
            return not self._inner(instruction) <= MOVES | COLLECTIVES | {"copy", "slice"}
        return not (
            opcode in MOVES
            or instruction.custom_call_target in MOVING_CALLS
            or instruction.shape.endswith("[]")
            or plain(opcode) in COLLECTIVES
            or self._opcode(instruction)
        )

    def passes_before(self, collective: Collective) -> list[Instruction]:
        """The passes over data between the parameters of a program and a collective."""
        before = reached(collective.first.operands, lambda one: one.operands)
        return [one for one in before if self.computes(one)]


def finder(computations: Iterable[Computation], whole: bool = True) -> Finder:
    """With all of them."""
    made = Finder(whole)
    for computation in computations:
        made.add(computation)
    return made
