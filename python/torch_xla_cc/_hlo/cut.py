"""A program without the part that is known: outputs of a module become parameters."""

from __future__ import annotations

from . import protobuf
from .opcodes import is_collective


def outputs_as_parameters(module_bytes: bytes, outputs: int) -> tuple[bytes, list[int]]:
    """The module with its first outputs only, computed from those of the others that they need.

    These are parameters behind those that there are; the numbers say which of the others they are.
    The entry computation has a tuple as its root, as torch_xla makes it.
    """
    module = protobuf.HloModuleProto.FromString(module_bytes)
    entry = next(c for c in module.computations if c.id == module.entry_computation_id)
    by_id = {one.id: one for one in entry.instructions}
    root = by_id[entry.root_id]
    if root.opcode != "tuple" or len(root.operand_ids) < outputs:
        raise ValueError(f"the module's root is {root.opcode} of {len(root.operand_ids)} elements")
    elements = list(root.operand_ids)
    first = sum(one.opcode == "parameter" for one in entry.instructions)
    number = 1 + max(
        max(computation.id, *(one.id for one in computation.instructions))
        for computation in module.computations
    )
    del root.operand_ids[outputs:]
    del root.shape.tuple_shapes[outputs:]
    places: dict[int, int] = {}  # by the instruction that is known
    for place, known in enumerate(elements[outputs:]):
        places.setdefault(known, place)
    kept = _needed(root.id, by_id, stop=places)
    used = sorted(places[one] for one in kept if one in places)
    parameters: list[protobuf.Message] = []
    instead: dict[int, int] = {}
    for place in used:
        known = elements[outputs + place]
        one = protobuf.HloInstructionProto(
            id=number + place,
            name=f"known.{number + place}",
            opcode="parameter",
            parameter_number=first + len(parameters),
        )
        one.shape.CopyFrom(by_id[known].shape)
        parameters.append(one)
        instead[known] = one.id
    for one in entry.instructions:
        one.operand_ids[:] = [instead.get(operand, operand) for operand in one.operand_ids]
    rest = [
        protobuf.HloInstructionProto.FromString(one.SerializeToString())
        for one in entry.instructions
        if one.opcode == "parameter" or (one.id in kept and one.id not in places)
    ]
    del entry.instructions[:]
    entry.instructions.extend([*parameters, *rest])
    for shape in (entry.program_shape, module.host_program_shape):
        shape.parameters.extend(one.shape for one in parameters)
        shape.parameter_names.extend(one.name for one in parameters)
        shape.result.CopyFrom(root.shape)
    whole: bytes = module.SerializeToString()
    return whole, used


def _needed(root: int, by_id: dict[int, protobuf.Message], stop: dict[int, int]) -> set[int]:
    """What an instruction needs, and nothing of what those where it stops need."""
    found: set[int] = set()
    left = [root]
    while left:
        number = left.pop()
        if number in found:
            continue
        found.add(number)
        if number not in stop:
            left.extend(by_id[number].operand_ids)
            left.extend(by_id[number].control_predecessor_ids)
    return found


def has_collective(module_bytes: bytes) -> bool:
    """Whether one is in what its entry computation comes to."""
    module = protobuf.HloModuleProto.FromString(module_bytes)
    by_id = {computation.id: computation for computation in module.computations}
    found: set[int] = set()
    left = [module.entry_computation_id]
    while left:
        number = left.pop()
        if number in found:
            continue
        found.add(number)
        for one in by_id[number].instructions:
            if is_collective(one.opcode):
                return True
            left.extend(one.called_computation_ids)
    return False
