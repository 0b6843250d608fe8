"""Types that XLA does not give to MPI: they go as others, to which they are converted and back.

XLA refuses float16 and what is smaller where it names a type to MPI: in reductions, and gathers.
Memory that ranks share is an MPI for it (mpi_names.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from . import hlo
from .errors import UNIMPLEMENTED, Refused
from .meetings import INSTRUCTION
from .mpi_library import CHOICE

_U8, _U16, _F16, _F32, _BF16 = 6, 7, 10, 11, 16  # of xla_data.proto
_F8 = (19, 20, 23, 24, 25)
_AS_BITS = {_F16: _U16, _BF16: _U16, **dict.fromkeys(_F8, _U8)}
_AS_NUMBERS = dict.fromkeys((_F16, *_F8), _F32)  # of bfloat16 XLA:CPU does it
_GOES = {
    "all-gather": ("bitcast-convert", _AS_BITS),
    "all-reduce": ("convert", _AS_NUMBERS),
    "reduce-scatter": ("convert", _AS_NUMBERS),
}
_S16, _S32, _U32, _S64, _U64, _F64, _C64, _C128 = 3, 4, 8, 5, 9, 12, 15, 18
_BYTES = {
    **dict.fromkeys((_S16, _U16, _F16, _BF16), 2),
    **dict.fromkeys((_S32, _U32, _F32), 4),
    **dict.fromkeys((_S64, _U64, _F64, _C64), 8),
    _C128: 16,
}
_SMALL = re.compile(r"\b(f16|bf16|f8\w+)\[")
_MOST_BYTES = 2**31 - 1  # XLA counts by int where it calls MPI


def check(text: str) -> None:
    """Refuse a program of partitions, given as compiled HLO, that has such types."""
    for line in text.splitlines():
        match = INSTRUCTION.match(line)
        if match and match["op"] in _GOES and (kind := _SMALL.search(match["type"])):
            raise Refused(
                UNIMPLEMENTED,
                f"{match['op']} of {kind[1]} in torch_xla's SPMD mode, which XLA does by gloo "
                f"alone. Set {CHOICE}=gloo, or call use_spmd() before a device is used",
            )


class Converted(NamedTuple):
    """A collective of other types."""

    instructions: list[hlo.Instruction]
    results: list[hlo.Instruction]  # of the types that were


def converted(
    ids: hlo.Ids,
    collective: hlo.Instruction,
    inputs: Sequence[hlo.Instruction],
    reduction: Callable[[int, int], int],
) -> Converted | None:
    """A collective that takes `inputs`, in types that MPI gets; None where it already is.

    `reduction(computation, type)` makes what reduces that type of what did another.
    """
    for shape in (i.shape for i in inputs):
        size = math.prod(hlo.dimensions(shape)) * _BYTES.get(hlo.element_type(shape), 1)
        if size > _MOST_BYTES:
            raise Refused(
                UNIMPLEMENTED,
                f"{collective.opcode} of {size} bytes, but a rank gives at most {_MOST_BYTES} to "
                f"one, by MPI or memory. Split the tensor, or set {CHOICE}=gloo",
            )
    how, types = _GOES.get(collective.opcode, ("", {}))
    shapes = [i.shape for i in inputs]
    if not any(hlo.element_type(shape) in types for shape in shapes):
        return None

    def other(shape: bytes) -> bytes:
        kind = hlo.element_type(shape)
        return hlo.of_type(shape, types.get(kind, kind))

    there = [ids.new(how, other(i.shape), [i.id]) for i in inputs]
    called = [reduction(c, hlo.element_type(there[0].shape)) for c in collective.called]
    of_each = list(map(other, hlo.elements(collective.shape)))
    shape = hlo.tuple_of(of_each) if hlo.is_tuple(collective.shape) else of_each[0]
    meets = ids.again(collective, shape, [i.id for i in there], called)
    parts = ids.taken_apart(meets) if hlo.is_tuple(shape) else []
    back = [
        ids.new(how, before, [part.id])
        for before, part in zip(hlo.elements(collective.shape), parts or [meets], strict=True)
    ]
    return Converted([*there, meets, *parts, *back], back)
