"""A program without the part that is known: outputs of a module become parameters."""

from __future__ import annotations

from typing import NamedTuple

from . import protobuf
from .opcodes import is_collective


class Cut(NamedTuple):
    """A module of some outputs of another, and what its parameters are there.

    Its numbers and names are those of a walk from its root: what computes the same is the same in
    its bytes, whatever else was in the module that it comes from.
    """

    module: bytes
    inputs: tuple[int, ...]  # of (the other's parameters, its outputs that are known), one for each
    had: int  # the other's parameters


def outputs_as_parameters(module_bytes: bytes, outputs: int) -> Cut:
    """The module with its first outputs only, computed from those of the others that they need.

    The entry computation has a tuple as its root, as torch_xla makes it.
    """
    module = protobuf.HloModuleProto.FromString(module_bytes)
    entry = next(c for c in module.computations if c.id == module.entry_computation_id)
    by_id = {one.id: one for one in entry.instructions}
    root = by_id[entry.root_id]
    if root.opcode != "tuple" or len(root.operand_ids) < outputs:
        raise ValueError(f"the module's root is {root.opcode} of {len(root.operand_ids)} elements")
    known: dict[int, int] = {}  # by instruction
    for place, one in enumerate(root.operand_ids[outputs:]):
        known.setdefault(one, place)
    del root.operand_ids[outputs:]
    del root.shape.tuple_shapes[outputs:]
    had = sum(one.opcode == "parameter" for one in entry.instructions)
    inputs: list[int] = []
    kept = []
    for number in _in_order(root.id, by_id, known):
        one = by_id[number]
        if number in known or one.opcode == "parameter":
            place = had + known[number] if number in known else one.parameter_number
            # A new one: what was known is another instruction, and has attributes of its own.
            parameter = protobuf.HloInstructionProto(id=number, opcode="parameter")
            parameter.shape.CopyFrom(one.shape)
            parameter.parameter_number = len(inputs)
            inputs.append(place)
            one = parameter
        kept.append(protobuf.HloInstructionProto.FromString(one.SerializeToString()))
    del entry.instructions[:]
    entry.instructions.extend(kept)
    entry = _renumber(module, entry)
    entry.program_shape.ClearField("parameters")
    entry.program_shape.parameters.extend(
        one.shape for one in entry.instructions if one.opcode == "parameter"
    )
    entry.program_shape.result.CopyFrom(root.shape)
    module.host_program_shape.CopyFrom(entry.program_shape)
    return Cut(module.SerializeToString(deterministic=True), tuple(inputs), had)


def _in_order(root: int, by_id: dict[int, protobuf.Message], stop: dict[int, int]) -> list[int]:
    """What an instruction needs, operands first, and nothing of what those where it stops need."""
    found: dict[int, bool] = {}  # whether all that it needs is there
    order = []
    left = [root]
    while left:
        number = left[-1]
        if number in found:
            left.pop()
            if not found[number]:
                found[number] = True
                order.append(number)
            continue
        found[number] = False
        if number not in stop:
            one = by_id[number]
            left += [
                needed
                for needed in (*reversed(one.operand_ids), *one.control_predecessor_ids)
                if needed not in found
            ]
    return order


def _renumber(module: protobuf.Message, entry: protobuf.Message) -> protobuf.Message:
    """Number and name all that the entry computation comes to, and remove the rest.

    Callees come first; what it gives back is the entry computation, which is a new object.
    """
    by_id = {computation.id: computation for computation in module.computations}
    order = [by_id[number] for number in _callees_first(entry.id, by_id)]
    computations = {computation.id: place for place, computation in enumerate(order, start=1)}
    number = len(order)  # ids of computations and of instructions are different ones
    for computation in order:
        computation.id = computations[computation.id]
        computation.name = f"computation.{computation.id}"
        instructions = {}
        for one in computation.instructions:
            number += 1
            instructions[one.id] = number
        computation.root_id = instructions[computation.root_id]
        for one in computation.instructions:
            one.id = instructions[one.id]
            one.name = f"{one.opcode}.{one.id}"
            one.ClearField("metadata")  # lines
            one.operand_ids[:] = [instructions[x] for x in one.operand_ids]
            one.control_predecessor_ids[:] = [instructions[x] for x in one.control_predecessor_ids]
            one.called_computation_ids[:] = [computations[x] for x in one.called_computation_ids]
        parameters = [one for one in computation.instructions if one.opcode == "parameter"]
        parameters.sort(key=lambda one: one.parameter_number)
        computation.program_shape.parameter_names[:] = [one.name for one in parameters]
    kept = [type(one).FromString(one.SerializeToString()) for one in order]
    del module.computations[:]
    module.computations.extend(kept)
    module.name, module.id = "known", 0
    module.ClearField("stack_frame_index")
    entry = module.computations[-1]
    module.entry_computation_id, module.entry_computation_name = entry.id, entry.name
    return entry


def _callees_first(entry: int, by_id: dict[int, protobuf.Message]) -> list[int]:
    order: dict[int, None] = {}

    def visit(number: int) -> None:
        for one in by_id[number].instructions:
            for called in one.called_computation_ids:
                if called not in order:
                    visit(called)
        order[number] = None

    visit(entry)
    return list(order)


def has_collective(module_bytes: bytes) -> bool:
    """Whether one is in a module in which all computations are called."""
    module = protobuf.HloModuleProto.FromString(module_bytes)
    return any(
        is_collective(one.opcode)
        for computation in module.computations
        for one in computation.instructions
    )
