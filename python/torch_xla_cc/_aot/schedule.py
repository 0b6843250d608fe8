"""The order in which a compiled program runs its instructions.

A HloModuleProto lists them after their operands, and their order in a table beside them.
"""

from __future__ import annotations

from .._hlo import protobuf

_TYPES = protobuf.load("""
message HloModuleProto { repeated HloComputationProto computations = 3; HloScheduleProto schedule = 7; }
message HloComputationProto { repeated HloInstructionProto instructions = 2; int64 id = 5; }
message HloInstructionProto { int64 id = 35; }
message HloScheduleProto { map<int64, InstructionSequence> sequences = 1; }
message InstructionSequence { repeated int64 instruction_ids = 1; }
""")  # noqa: E501 (a message a line)


def in_order(hlo: bytes) -> bytes:
    """The same module, whose instructions stand as they run, so that readers need no table."""
    module = _TYPES["HloModuleProto"].FromString(hlo)
    for computation in module.computations:
        if computation.id not in module.schedule.sequences:
            continue  # of a fusion
        ids = module.schedule.sequences[computation.id].instruction_ids
        places = {number: place for place, number in enumerate(ids)}
        computation.instructions.sort(key=lambda one: places[one.id])
    return bytes(module.SerializeToString())
