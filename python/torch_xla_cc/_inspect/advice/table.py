"""What another call would become on a target, asked of the lowering and of the compiler."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..._hlo import protobuf, traffic
from ..._hlo.instruction import Array
from ..compiled import compiled

_TIMEOUT_S = 60.0
_Groups = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Lowered:
    """A call, as it would be emitted."""

    module: bytes  # a serialized HloModuleProto

    native: bool
    wire_bytes: int  # that come to a rank
    instructions: int


def lowered(
    op: str,
    target: str,
    world: int,
    operands: Sequence[Array],
    groups: _Groups,
    *,
    reduction: str = "sum",
    dim: int = 0,
    root: int = 0,
) -> Lowered | None:
    """None if there is no such call, or the target is not known."""
    fields: dict[str, tuple[Any, ...]] = {
        "all_gather": (dim, groups),
        "all_reduce": (reduction, 1.0, 1.0, groups),
        "reduce_scatter": (reduction, 1.0, 1.0, dim, None, groups),
        "all_to_all": (dim, dim, None, groups),
        "collective_broadcast": (root, groups),
    }
    if not target or op not in fields:
        return None
    # Only here: a dump, whose target is not known, is read without torch.
    from ... import _C
    from ..._ops.targets import lowering_for

    try:
        shapes = [(protobuf.PrimitiveType[one.dtype.upper()], one.dims) for one in operands]
        with lowering_for(target, world):
            made = getattr(_C, f"lower_{op}")(shapes, *fields[op])
    except (KeyError, ValueError):
        return None
    return Lowered(
        bytes(made["bytes"]),
        made["rule"] == "native",
        made["wire_bytes"],
        len(made["opcodes"]),
    )


@functools.lru_cache(maxsize=256)
def became(module: bytes, target: str, world: int) -> tuple[int, int] | None:
    """What comes to a rank when the compiler is done with it, and in how many collectives; None if
    it does not come to that.

    A TPU's compiler makes an all-reduce of many a reduce-scatter, and several all-gathers of a
    list: no advice should lead there.
    """
    program = compiled(module, target, world, _TIMEOUT_S)
    if program.failure:
        return None
    found = program.finder().found()
    return round(sum(traffic.received(one, world) for one in found)), len(found)
