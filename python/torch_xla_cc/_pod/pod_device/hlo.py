"""Instructions and computations of a HloModuleProto, to be written anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from . import protos

# Fields of HloModuleProto, HloComputationProto, HloInstructionProto, ShapeProto, ProgramShapeProto.
COMPUTATIONS, ENTRY_ID = 3, 6
NAME, _INSTRUCTIONS, _PROGRAM_SHAPE, _COMPUTATION_ID, _ROOT_ID = 1, 2, 4, 5, 6
_OPCODE, _SHAPE, METADATA, _PARAMETER, _TUPLE_INDEX = 2, 3, 7, 9, 13
_ID, _OPERANDS, _PREDECESSORS, _CALLED, _SHARDING = 35, 36, 37, 38, 40
FRONTEND_ATTRIBUTES = 68
REPLICA_GROUPS = (49, 87)  # as lists, or as a form of all devices
_ELEMENT_TYPE, _DIMENSIONS, _TUPLE_SHAPES, _LAYOUT = 2, 3, 4, 5
_PARAMETERS, _RESULT, _PARAMETER_NAMES = 1, 2, 3
_TUPLE, _U32 = 13, 8

TOKEN = protos.number_field(_ELEMENT_TYPE, _U32) + protos.bytes_field(_LAYOUT, b"")  # a u32[]


class Instruction(NamedTuple):
    """One of a computation."""

    raw: bytes
    id: int
    opcode: str
    shape: bytes
    operands: tuple[int, ...] = ()
    called: tuple[int, ...] = ()


class Computation(NamedTuple):
    """One of a module."""

    head: bytes  # all but its instructions
    root: int
    instructions: list[Instruction]


class Ids:
    """Makes instructions with ids that are new in a module."""

    def __init__(self, found: Mapping[int, Computation]) -> None:
        self._last = max(i.id for c in found.values() for i in c.instructions)
        self._last = max(self._last, *found)

    def next(self) -> int:
        """An id."""
        self._last += 1
        return self._last

    def new(
        self,
        opcode: str,
        shape: bytes,
        operands: Sequence[int] = (),
        called: Sequence[int] = (),
        more: bytes = b"",
    ) -> Instruction:
        """An instruction; `more` are further fields."""
        return made(self.next(), opcode, shape, operands, called, more)

    def again(
        self, old: Instruction, shape: bytes, operands: Sequence[int], called: Sequence[int]
    ) -> Instruction:
        """One with another shape, operands and callees, which its sharding is not of."""
        changed = NAME, _ID, _OPERANDS, _PREDECESSORS, _OPCODE, _SHAPE, _CALLED, _SHARDING
        raw = protos.without(old.raw, *changed)
        return self.new(old.opcode, shape, operands, called, raw)

    def parameter(self, number: int, shape: bytes) -> Instruction:
        """A parameter."""
        return self.new("parameter", shape, (), (), protos.number_field(_PARAMETER, number))

    def taken_apart(self, value: Instruction) -> list[Instruction]:
        """The elements of a tuple."""
        return [
            self.new(
                "get-tuple-element", shape, (value.id,), (), protos.number_field(_TUPLE_INDEX, i)
            )
            for i, shape in enumerate(elements(value.shape))
        ]


def made(
    number: int,
    opcode: str,
    shape: bytes,
    operands: Sequence[int] = (),
    called: Sequence[int] = (),
    more: bytes = b"",
) -> Instruction:
    """An instruction with that id."""
    raw = _numbered(opcode, number, operands)
    raw += protos.bytes_field(_OPCODE, opcode.encode()) + protos.bytes_field(_SHAPE, shape)
    raw += protos.numbers_field(_CALLED, called) + more
    return Instruction(raw, number, opcode, shape, tuple(operands), tuple(called))


def renumbered(instruction: Instruction, numbers: Mapping[int, int]) -> Instruction:
    """The instruction with ids of `numbers`, and without control dependences."""
    number = numbers[instruction.id]
    operands = [numbers[i] for i in instruction.operands]
    raw = protos.without(instruction.raw, NAME, _ID, _OPERANDS, _PREDECESSORS)
    raw += _numbered(instruction.opcode, number, operands)
    return instruction._replace(raw=raw, id=number, operands=tuple(operands))


def retyped(instruction: Instruction, kind: int) -> Instruction:
    """The instruction with another element type."""
    shape = of_type(instruction.shape, kind)
    raw = protos.without(instruction.raw, _SHAPE) + protos.bytes_field(_SHAPE, shape)
    return instruction._replace(raw=raw, shape=shape)


def _numbered(opcode: str, number: int, operands: Sequence[int]) -> bytes:
    """Its name, id and operands: what is another in each place."""
    name = protos.bytes_field(NAME, f"{opcode}.{number}".encode())
    return name + protos.number_field(_ID, number) + protos.numbers_field(_OPERANDS, operands)


def computation(raw: memoryview) -> tuple[int, Computation]:
    """Of its message; with its id."""
    instructions = list(map(_instruction, protos.inside(raw, _INSTRUCTIONS)))
    head, root = protos.without(raw, _INSTRUCTIONS), protos.number(raw, _ROOT_ID)
    return protos.number(raw, _COMPUTATION_ID), Computation(head, root, instructions)


def _instruction(raw: memoryview) -> Instruction:
    (opcode,) = protos.inside(raw, _OPCODE)
    (shape,) = protos.inside(raw, _SHAPE)
    return Instruction(
        bytes(raw),
        protos.number(raw, _ID),
        str(opcode, "ascii"),
        bytes(shape),
        tuple(protos.numbers_of(raw, _OPERANDS)),
        tuple(protos.numbers_of(raw, _CALLED)),
    )


def is_tuple(shape: bytes) -> bool:
    """Whether a shape is that of a tuple."""
    return element_type(shape) == _TUPLE


def elements(shape: bytes) -> list[bytes]:
    """The shapes in that of a tuple, or itself."""
    return list(map(bytes, protos.inside(shape, _TUPLE_SHAPES))) if is_tuple(shape) else [shape]


def tuple_of(shapes: Sequence[bytes]) -> bytes:
    """The shape of a tuple."""
    elements = b"".join(protos.bytes_field(_TUPLE_SHAPES, shape) for shape in shapes)
    return protos.number_field(_ELEMENT_TYPE, _TUPLE) + elements


def element_type(shape: bytes) -> int:
    """Its number in xla_data.proto."""
    return protos.number(shape, _ELEMENT_TYPE)


def dimensions(shape: bytes) -> list[int]:
    """Of an array's."""
    return protos.numbers_of(shape, _DIMENSIONS)


def of_type(shape: bytes, kind: int) -> bytes:
    """The shape with another element type."""
    return protos.number_field(_ELEMENT_TYPE, kind) + protos.without(shape, _ELEMENT_TYPE)


def written(computation: Computation) -> bytes:
    """The message."""
    body = (protos.bytes_field(_INSTRUCTIONS, i.raw) for i in computation.instructions)
    return computation.head + b"".join(body)


def made_computation(
    name: str, number: int, instructions: list[Instruction], root: Instruction
) -> Computation:
    """One that returns `root`."""
    parameters = [i for i in instructions if i.opcode == "parameter"]
    shapes = sorted((protos.number(i.raw, _PARAMETER), i.shape) for i in parameters)
    program = b"".join(
        protos.bytes_field(_PARAMETERS, shape) + protos.bytes_field(_PARAMETER_NAMES, b"p%d" % i)
        for i, shape in shapes
    )
    program += protos.bytes_field(_RESULT, root.shape)
    head = protos.bytes_field(NAME, name.encode()) + protos.bytes_field(_PROGRAM_SHAPE, program)
    head += protos.number_field(_COMPUTATION_ID, number) + protos.number_field(_ROOT_ID, root.id)
    return Computation(head, root.id, instructions)
