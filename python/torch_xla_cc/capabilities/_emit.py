"""The bytes that a probe compiles: what our lowering emits, with the rule forced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch_xla_cc import _C
from torch_xla_cc._hlo import protobuf
from torch_xla_cc._ops.targets import lowering_for

from ._grid import Cell, Device, dims, fields


@contextlib.contextmanager
def forced(rule: str) -> Iterator[None]:
    """Every lowering of this thread takes `rule`, whatever the table says."""
    _C.set_forced_rule(rule)
    try:
        yield
    finally:
        _C.set_forced_rule(None)


def lower(cell: Cell, device: Device, rule: str, shapes: list[list[int]]) -> dict[str, Any]:
    """What a call becomes on a device; ValueError where it has no such form."""
    number = int(protobuf.PrimitiveType[cell.type.upper()])
    operands = [(number, shape) for shape in shapes]
    with lowering_for(device.target, device.world), forced(rule):
        lowered = getattr(_C, f"lower_{cell.op}")(
            operands, *fields(cell, device.world, shapes[0][0])
        )
    return dict(lowered)


def module(cell: Cell, device: Device) -> bytes:
    """The module of a probe."""
    if cell.op == "parameter":
        return _parameter(cell.type, dims(device.world, "one")[0])
    shapes = dims(device.world, cell.number)
    if cell.op in ("send", "recv"):
        # Either alone is refused as dangling; in a step they come together.
        return both_ends(cell, device, "native", shapes)
    return bytes(lower(cell, device, "native", shapes)["bytes"])


def both_ends(cell: Cell, device: Device, rule: str, shapes: list[list[int]]) -> bytes:
    """One program of a send and the recv on its channel, as torch_xla's graph has it."""
    program = protobuf.HloModuleProto()
    for op in ("send", "recv"):
        part = bytes(lower(cell._replace(op=op), device, rule, shapes)["bytes"])
        _append(program, protobuf.HloModuleProto.FromString(part))
    return bytes(program.SerializeToString())


def _append(program: protobuf.Message, part: protobuf.Message) -> None:
    """Add a module, whose entry then runs beside the program's, and returns what it returns."""
    if not program.computations:
        program.CopyFrom(part)
        return
    shift = 1 + max(
        number
        for one in program.computations
        for number in [one.id, *(made.id for made in one.instructions)]
    )
    for one in part.computations:
        one.id += shift
        one.root_id += shift
        for made in one.instructions:
            made.id += shift
            for ids in (
                made.operand_ids,
                made.control_predecessor_ids,
                made.called_computation_ids,
            ):
                ids[:] = [number + shift for number in ids]
    for made in part.computations[:-1]:
        program.computations.insert(0, made)
    entry, other = program.computations[-1], part.computations[-1]
    taken = len(entry.program_shape.parameters)
    for made in other.instructions:
        made.name = f"{made.name}.{made.id}"
        if made.opcode == "parameter":
            made.parameter_number += taken
    ends = [_root(entry), _root(other)]
    entry.instructions.extend(other.instructions)
    entry.program_shape.parameters.extend(other.program_shape.parameters)
    entry.program_shape.parameter_names.extend(
        f"{name}.{shift}" for name in other.program_shape.parameter_names
    )
    number = 10 * shift
    both = entry.instructions.add(name=f"tuple.{number}", id=number, opcode="tuple")
    both.operand_ids.extend(made.id for made in ends)
    both.shape.element_type = protobuf.PrimitiveType["TUPLE"]
    both.shape.tuple_shapes.extend(made.shape for made in ends)
    entry.root_id = number
    entry.program_shape.result.CopyFrom(both.shape)
    program.host_program_shape.CopyFrom(entry.program_shape)


def _root(computation: protobuf.Message) -> protobuf.Message:
    return next(made for made in computation.instructions if made.id == computation.root_id)


def _parameter(type_name: str, shape: list[int]) -> bytes:
    """A program that returns what it is given."""
    program = protobuf.HloModuleProto(
        name="parameter", entry_computation_name="entry.1", entry_computation_id=1
    )
    entry = program.computations.add(name="entry.1", id=1, root_id=3)
    x = entry.instructions.add(name="parameter.2", id=2, opcode="parameter")
    x.shape.element_type = protobuf.PrimitiveType[type_name.upper()]
    x.shape.dimensions.extend(shape)
    x.shape.layout.minor_to_major.extend(reversed(range(len(shape))))
    y = entry.instructions.add(name="copy.3", id=3, opcode="copy", operand_ids=[2], shape=x.shape)
    entry.program_shape.parameters.append(x.shape)
    entry.program_shape.parameter_names.append("x")
    entry.program_shape.result.CopyFrom(y.shape)
    program.host_program_shape.CopyFrom(entry.program_shape)
    return bytes(program.SerializeToString())
