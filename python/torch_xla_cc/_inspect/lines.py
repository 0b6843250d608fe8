"""Which lines of the user's a program is from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .. import _C
from .._hlo import protobuf
from .._runtime.call_site import is_users
from .._runtime.private import XLAC


@contextlib.contextmanager
def lines() -> Iterator[None]:
    """Instructions know the line that issued them: collectives from us, others from torch_xla."""
    before = _C.debug(), XLAC._get_ir_debug()
    _C.set_debug(True)
    XLAC._set_ir_debug(True)
    try:
        yield
    finally:
        _C.set_debug(before[0])
        XLAC._set_ir_debug(before[1])


def of_users(module: bytes) -> bytes:
    """A traced module with the user's lines, where torch_xla names one of ours or of torch's."""
    parsed = protobuf.HloModuleProto.FromString(module)
    index = parsed.stack_frame_index
    for computation in parsed.computations:
        for instruction in computation.instructions:
            metadata = instruction.metadata
            if instruction.opcode == "call":  # of ours: compilers put its name before what it has
                metadata.op_name = metadata.op_type = ""
            # Each frame knows its caller; numbers count from 1.
            at = metadata.stack_frame_id
            # What torch_xla takes in from elsewhere, as bodies of loops, has the numbers of there.
            while 0 < at <= len(index.stack_frames) and not is_users(metadata.source_file):
                frame = index.stack_frames[at - 1]
                where = index.file_locations[frame.file_location_id - 1]
                metadata.source_file = index.file_names[where.file_name_id - 1]
                metadata.source_line = where.line
                at = frame.parent_frame_id
            metadata.ClearField("stack_frame_id")
    parsed.ClearField("stack_frame_index")
    return bytes(parsed.SerializeToString())
