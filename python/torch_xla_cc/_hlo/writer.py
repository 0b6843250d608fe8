"""Writes instructions of HLO: one that is asked for again is that which is there."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from . import protobuf

_Instruction = Any  # a HloInstructionProto
_S32 = protobuf.PrimitiveType["S32"]


class Writer:
    """Of one computation."""

    def __init__(self, last: int) -> None:
        self._last = last  # number that is taken
        self._written: dict[Hashable, _Instruction] = {}

    def write(self, computation: protobuf.Message, root: _Instruction) -> None:
        """Have it consist of what the root needs, and of its parameters."""
        needed = {root.id}
        kept = []
        for one in reversed(self._written.values()):
            if one.id in needed or one.opcode == "parameter":
                needed.update(one.operand_ids)
                kept.append(one)
        del computation.instructions[:]
        computation.instructions.extend(reversed(kept))
        computation.root_id = root.id

    def again(self, one: _Instruction, operands: Sequence[_Instruction]) -> _Instruction:
        """The same, of these operands."""
        key = one.id, *(x.id for x in operands)
        if key not in self._written:
            copy = protobuf.HloInstructionProto()
            copy.CopyFrom(one)
            self._put(key, copy, operands)
        return self._written[key]

    def _new(
        self,
        opcode: str,
        shape: protobuf.Message,
        operands: Sequence[_Instruction],
        **fields: Any,  # noqa: ANN401 (of the message)
    ) -> _Instruction:
        key = (
            *(opcode, shape.SerializeToString(deterministic=True), str(fields)),
            *(x.id for x in operands),
        )
        if key not in self._written:
            one = protobuf.HloInstructionProto(opcode=opcode, **fields)
            one.shape.CopyFrom(shape)
            self._put(key, one, operands)
        return self._written[key]

    def _put(self, key: Hashable, one: _Instruction, operands: Sequence[_Instruction]) -> None:
        self._last += 1
        one.id = self._last
        one.name = f"{one.opcode}.{one.id}"
        one.operand_ids[:] = [x.id for x in operands]
        del one.control_predecessor_ids[:]
        self._written[key] = one

    # Shapes are those of instructions that are there, or of their parts.

    def tuple(self, shape: protobuf.Message, parts: Sequence[_Instruction]) -> _Instruction:
        """All of them."""
        return self._new("tuple", shape, parts)

    def number(self, shape: protobuf.Message, value: int) -> _Instruction:
        """Of u32 or s32."""
        number = _number(shape.element_type)
        signed = shape.element_type == _S32
        literal = protobuf.LiteralProto(shape=number, **{"s32s" if signed else "u32s": [value]})
        return self._new("constant", number, [], literal=literal)

    def zeros(self, shape: protobuf.Message) -> _Instruction:
        """Of any type."""
        zero = self.number(protobuf.ShapeProto(element_type=_S32), 0)
        typed = self._new("convert", _number(shape.element_type), [zero])
        return self._new("broadcast", shape, [typed])

    def joined(self, parts: Sequence[_Instruction], dim: int) -> _Instruction:
        """One behind the other."""
        shape = _with(parts[0].shape, dim, sum(x.shape.dimensions[dim] for x in parts))
        return self._new("concatenate", shape, parts, dimensions=[dim])

    def part(self, x: _Instruction, dim: int, place: int, count: int) -> _Instruction:
        """Of so many parts along a dimension."""
        size = x.shape.dimensions[dim] // count
        cut = [protobuf.SliceDimensions(limit=n, stride=1) for n in x.shape.dimensions]
        cut[dim].start, cut[dim].limit = place * size, (place + 1) * size
        return self._new("slice", _with(x.shape, dim, size), [x], slice_dimensions=cut)

    def reduced(self, parts: Sequence[_Instruction], by: int) -> _Instruction:
        """All of them, by a computation that is associative."""
        parts = list(parts)
        while len(parts) > 1:  # in pairs, of which many may be the same
            rest = parts[len(parts) & ~1 :]
            parts = [self._map(a, b, by) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts += rest
        return parts[0]

    def _map(self, a: _Instruction, b: _Instruction, by: int) -> _Instruction:
        dims = list(range(len(a.shape.dimensions)))
        return self._new("map", a.shape, [a, b], dimensions=dims, called_computation_ids=[by])


def _number(element_type: int) -> protobuf.Message:
    """The shape of one, with a layout, which XLA asks of a literal's."""
    shape = protobuf.ShapeProto(element_type=element_type)
    shape.layout.SetInParent()
    return shape


def _with(shape: protobuf.Message, dim: int, size: int) -> protobuf.Message:
    made = protobuf.ShapeProto()
    made.CopyFrom(shape)
    made.dimensions[dim] = size
    return made
