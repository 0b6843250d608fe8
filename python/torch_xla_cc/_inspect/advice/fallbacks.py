"""Fallbacks that another form of the same call would avoid."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..._hlo.instruction import Array, arrays
from .study import LEAST_BYTES, Advice
from .table import Lowered, lowered

if TYPE_CHECKING:
    from ..._ops.recording import Call

# Types that say the same of most values, and what to know about them.
_OTHER_TYPES = {
    "s64": ("s32", "torch.int32", "if its values fit in 32 bits"),
    "f8e5m2": ("bf16", "torch.bfloat16", "whose sums are rounded more than the fallback's f32"),
    "f8e4m3fn": ("bf16", "torch.bfloat16", "whose sums are rounded more than the fallback's f32"),
}
_OPS = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all")
_REDUCTIONS = ("all_reduce", "reduce_scatter")
_REDUCTION = re.compile(r"reduce_type=(\w+)")
_DIM = re.compile(r"\b(?:split_)?dim=(\d+)")
_Groups = tuple[tuple[int, ...], ...]


def fallbacks(calls: Sequence[Call], target: str, world: int) -> Iterator[Advice]:
    """Advice on calls that the target has no instruction for."""
    some = [call for call in calls if call.rule == "fallback" and call.op in _OPS]
    for call, times in Counter(some).items():
        operands = [array for text in call.operands for array in arrays(text)]
        now = _lowered(call, target, world, operands, call.groups)
        for text, other in _forms(call, operands, target, world):
            if now is None or other is None or not other.native:
                continue
            saved = (now.wire_bytes - other.wire_bytes) * times
            if saved < LEAST_BYTES:
                continue
            why = f"{call.op} of {', '.join(call.operands)} is a fallback: {call.why}. "
            yield Advice("fallback", why + text, ((call.file, call.line),) * times, saved)
            break


def _forms(
    call: Call, operands: Sequence[Array], target: str, world: int
) -> Iterator[tuple[str, Lowered | None]]:
    """Other forms of a call, with what they would be."""
    if groups := _completed(call.groups, world):
        listed = [list(group) for group in groups]
        yield (
            f"If all ranks make this call, name those that are in no group too: groups={listed}.",
            _lowered(call, target, world, operands, groups),
        )
    others = {_OTHER_TYPES.get(one.dtype) for one in operands}
    if len(others) == 1 and (other := others.pop()) and call.op in _REDUCTIONS:
        dtype, torch_name, remark = other
        converted = [Array(dtype, one.dims) for one in operands]
        yield (
            f"Convert to {torch_name}, {remark}.",
            _lowered(call, target, world, converted, call.groups),
        )


def _completed(groups: _Groups, world: int) -> _Groups:
    """With groups of the same size for ranks that are in none; () where that cannot be."""
    sizes = {len(group) for group in groups}
    missing = sorted(set(range(world)) - {rank for group in groups for rank in group})
    if len(sizes) != 1 or not missing or len(missing) % (size := sizes.pop()):
        return ()
    more = tuple(tuple(missing[at : at + size]) for at in range(0, len(missing), size))
    return (*groups, *more)


def _lowered(
    call: Call, target: str, world: int, operands: Sequence[Array], groups: _Groups
) -> Lowered | None:
    reduction = _REDUCTION.search(call.name)
    dim = _DIM.search(call.name)
    return lowered(
        call.op,
        target,
        world,
        operands,
        groups,
        reduction=reduction[1] if reduction else "sum",
        dim=int(dim[1]) if dim else 0,
    )
