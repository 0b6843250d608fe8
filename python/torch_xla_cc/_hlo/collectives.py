"""The collectives of a module, one for each, whatever form a compiler has given it."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field

from .effort import Effort, Efforts, effort, efforts
from .halves import half
from .instruction import Array, Groups, Instruction, Source, arrays
from .opcodes import (
    CHAIN_BEGINS,
    CHAIN_ENDS,
    CHAIN_GOES_ON,
    COLLECTIVES,
    HEAVY,
    MOVES,
    MOVING_CALLS,
    WRAPPERS,
    plain,
)
from .text import Computation
from .walk import reached

_MOST_MEANWHILE = 1000
_NONE: frozenset[str] = frozenset()


@dataclass(eq=False, slots=True)
class Collective:
    """A collective that a program runs. A pair of start and done is one, and so is a fusion, or
    several of which one begins it, others compute beside it, and the last ends it."""

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
    efforts: list[Effort] = field(default_factory=list, repr=False)  # of each of these
    in_loop: bool = False  # how often it runs is not known
    in_chain: bool = False  # of fusions

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
        # Opcodes of each computation and of what it runs, with the targets of custom calls.
        self._contents: dict[str, frozenset[str]] = {}
        self._halves: dict[str, str] = {}
        self.efforts: dict[str, Efforts] = {}  # of computations that others may run
        self._found: dict[str, list[Collective]] = {}  # in each computation
        self._wrapped: set[str] = set()
        self._called: dict[str, set[str]] = {}  # by each computation
        self._loops: set[str] = set()
        self.callers: dict[str, str] = {}  # of a computation that an instruction "call" runs
        # What each computation that has collectives takes and gives.
        self.signatures: dict[str, tuple[list[Array], list[Array]]] = {}
        self.lengths: dict[str, int] = {}  # instructions of each computation

    def add(self, computation: Computation) -> None:
        scan = _Scan(self, computation)
        for place, instruction in enumerate(computation.instructions):
            self._note_calls(instruction, computation.name)
            scan.take(place, instruction)
        found = scan.found
        if not self._whole:
            for collective in found.values():
                for operand in collective.first.operands:
                    operand.operands = operand.operands if operand in found else ()
        name = computation.name
        self._found[name] = list(found.values())
        self.lengths[name] = len(computation.instructions)
        self._contents[name] = _NONE.union(
            *({one.opcode, one.custom_call_target} for one in computation.instructions),
            *(self.contents(one) for one in computation.instructions if one.called),
        )
        if becomes := half(computation):
            self._halves[name] = becomes
        if not computation.is_entry:
            self.efforts[name] = efforts(computation.instructions, computation.root, self.efforts)
        if self._contents[name] & COLLECTIVES:
            self.signatures[name] = _signature(computation)

    def _note_calls(self, instruction: Instruction, computation: str) -> None:
        if not instruction.called:
            return
        self._called.setdefault(computation, set()).update(instruction.called)
        if instruction.opcode in WRAPPERS:
            self._wrapped.update(instruction.called)
        elif instruction.opcode == "while":
            self._loops.update(instruction.called)
        elif instruction.opcode == "call":
            self.callers.update(dict.fromkeys(instruction.called, computation))

    def found(self) -> list[Collective]:
        """Those of all computations that are no part of an instruction."""
        looped = set(reached(self._loops, lambda name: self._called.get(name, ())))
        found = []
        for name, some in self._found.items():
            for collective in some if name not in self._wrapped else ():
                collective.in_loop = name in looped
                found.append(collective)
        return found

    def contents(self, instruction: Instruction) -> frozenset[str]:
        """What is in the computations that an instruction runs."""
        return _NONE.union(*(self._contents.get(name, _NONE) for name in instruction.called))

    def opcode(self, instruction: Instruction) -> str:
        """The plain opcode, if the instruction is a collective or begins one."""
        opcode = plain(instruction.opcode)
        if opcode in COLLECTIVES:
            return opcode
        if instruction.opcode not in WRAPPERS:
            return ""
        for name in instruction.called:
            if name in self._halves:
                return self._halves[name]
        return min(self.contents(instruction) & COLLECTIVES, default="")

    def made(self, instruction: Instruction, opcode: str, place: int) -> Collective:
        """The collective that an instruction is, or begins."""
        of: Instruction | Collective = instruction
        if plain(instruction.opcode) not in COLLECTIVES:  # what it wraps knows the groups
            of = next((c for name in instruction.called for c in self._found.get(name, ())), of)
        return Collective(
            first=instruction,
            last=instruction,
            opcode=opcode,
            groups=of.groups,
            pairs=of.pairs,
            channel_id=of.channel_id,
            dimensions=of.dimensions,
            source=instruction.source if instruction.source.op_name else of.source,
            begins=place,
            ends=place,
        )

    def computes(self, instruction: Instruction) -> bool:
        """Whether it is a pass over data: it computes, or copies into another layout.

        Not what only moves data to another memory, not scalars, not collectives.
        """
        opcode = instruction.opcode
        if opcode == "copy":
            return instruction.layout != instruction.operands[0].layout
        if opcode == "async-start":
            return not self.contents(instruction) - {""} <= MOVES | COLLECTIVES | {"copy", "slice"}
        return not (
            opcode in MOVES
            or instruction.custom_call_target in MOVING_CALLS
            or _is_scalar(instruction)
            or plain(opcode) in COLLECTIVES
            or self.opcode(instruction)
        )

    def passes_before(self, collective: Collective) -> list[Instruction]:
        """The passes over data between the parameters of a program and a collective."""
        before = reached(collective.first.operands, lambda one: one.operands)
        return [one for one in before if self.computes(one)]


class _Scan:
    """One computation, in the order of its schedule."""

    def __init__(self, finder: Finder, computation: Computation) -> None:
        self._finder = finder
        self._instructions = computation.instructions
        self.found: dict[Instruction, Collective] = {}
        self._running: dict[Instruction, list[Collective]] = {}  # by start, or what goes on with it
        self._computing: list[int] = []  # places of what computes
        self._efforts: dict[Instruction, Effort] = {}

    def take(self, place: int, instruction: Instruction) -> None:
        if self._is_later_part(instruction):
            self._goes_on(place, instruction)
        elif opcode := self._finder.opcode(instruction):
            made = self._finder.made(instruction, opcode, place)
            made.in_chain = CHAIN_BEGINS in self._finder.contents(instruction)
            self.found[instruction] = made
            starts = instruction.opcode.endswith("-start") or made.in_chain
            if starts or opcode in ("send", "recv"):
                self._running[instruction] = [made]
        elif self._finder.computes(instruction):
            self._computes(place, instruction)

    def _is_later_part(self, one: Instruction) -> bool:
        """Whether it ends a collective that has begun, in this computation or around it, or goes on
        with it. What is handed on from part to part of a chain are flags: scalars."""
        if one.opcode != "fusion":
            begun = one.operands[0] if one.operands else None
            return begun in self._running and one.opcode.endswith(("-done", "-update"))
        if CHAIN_ENDS in self._finder.contents(one):
            return True
        goes_on = any(name.startswith(CHAIN_GOES_ON) for name in one.called)
        return goes_on and any(operand.shape == "u32[]" for operand in one.operands)

    def _goes_on(self, place: int, one: Instruction) -> None:
        is_fusion = one.opcode == "fusion"
        parts = {
            operand.operands[0] if operand.opcode == "get-tuple-element" else operand
            for operand in one.operands
            if not is_fusion or operand.shape == "u32[]"
        }
        collectives = [c for part in parts for c in self._running.pop(part, ())]
        ends = not one.opcode.endswith("-update")
        if is_fusion and CHAIN_ENDS not in self._finder.contents(one):
            ends = False
            self._computes(place, one)
            for collective in collectives:
                collective.meanwhile.append(one)
                collective.efforts.append(self._efforts[one])
        if not ends:
            self._running.setdefault(one, []).extend(collectives)
            return
        for collective in collectives:
            collective.last, collective.ends = one, place
            # A chain moves on only where it is a part of what computes.
            if not collective.in_chain:
                first = bisect(self._computing, collective.begins)
                collective.meanwhile = [
                    self._instructions[at]
                    for at in self._computing[first : first + _MOST_MEANWHILE]
                ]
                collective.efforts = [self._efforts[step] for step in collective.meanwhile]

    def _computes(self, place: int, one: Instruction) -> None:
        contents = self._finder.contents(one)
        one.holds = next((opcode for opcode in HEAVY if opcode in contents), "")
        self._computing.append(place)
        self._efforts[one] = effort(one, self._finder.efforts)


def _is_scalar(one: Instruction) -> bool:
    """Whether it makes one number, of numbers."""
    return one.shape.endswith("[]") and all(op.shape.endswith("[]") for op in one.operands)


def _signature(computation: Computation) -> tuple[list[Array], list[Array]]:
    parameters = [one for one in computation.instructions if one.opcode == "parameter"]
    parameters.sort(key=lambda one: one.number)
    takes = [array for one in parameters for array in one.arrays]
    return takes, list(computation.root.arrays if computation.root else ())


def finder(computations: Iterable[Computation], whole: bool = True) -> Finder:
    """With all of them."""
    made = Finder(whole)
    for computation in computations:
        made.add(computation)
    return made
