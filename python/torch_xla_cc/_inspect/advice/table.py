"""What a call would become on a target, asked of the lowering and its table of capabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ... import _C, _hlo_pb
from ..._hlo.instruction import Array
from ..._targets import lowering_for

_Groups = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Lowered:
    """A call, as it would be emitted."""

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
    try:
        shapes = [(_hlo_pb.PrimitiveType[one.dtype.upper()], one.dims) for one in operands]
        with lowering_for(target, world):
            made = getattr(_C, f"lower_{op}")(shapes, *fields[op])
    except (KeyError, ValueError):
        return None
    return Lowered(made["rule"] == "native", made["wire_bytes"], len(made["opcodes"]))
