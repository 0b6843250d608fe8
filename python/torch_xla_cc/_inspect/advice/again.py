"""Collectives that are issued more often than they need to be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence

from .study import LEAST_BYTES, Advice, Issued, Study
from .table import became, lowered

# Others have operands that say little about what they give: a recv has none of its own.
_BY_OPERANDS = frozenset(
    {
        "all-gather",
        "all-reduce",
        "all-to-all",
        "collective-broadcast",
        "collective-permute",
        "reduce-scatter",
    }
)
_LISTS = {
    "all-gather": "all_gather",
    "all-reduce": "all_reduce",
    "reduce-scatter": "reduce_scatter",
}


def repeated(study: Study) -> Iterator[Advice]:
    """The same collective of the same value."""
    for some in _alike(study):
        first, *others = some
        saved = len(others) * study.received(first)
        times = "twice" if len(some) == 2 else f"{len(some)} times"
        text = (
            f"{_name(first)} of one and the same {_operands(first)} is issued {times}, and the "
            "compiler keeps them. Issue it once, and use its result again."
        )
        lines = tuple(one.line for one in some)
        yield Advice("repeated", text, lines, saved, saved_starts=len(others))


def small(study: Study) -> Iterator[Advice]:
    """Small collectives that do not need each other."""
    again = {id(one) for some in _alike(study) for one in some[1:]}
    classes: dict[Hashable, list[Issued]] = defaultdict(list)
    for one in study.issued:
        is_small = one.collective.operand_bytes <= LEAST_BYTES
        if is_small and id(one) not in again and _can_be_listed(study, one):
            classes[_kind(study, one)].append(one)
    for some in classes.values():
        levels: dict[int, list[Issued]] = defaultdict(list)
        for one, level in zip(some, _levels(study, some), strict=True):
            levels[level].append(one)
        for together in levels.values():
            if len(together) < 2 or any(map(study.combined, together)):
                continue
            if not _is_one(study, together):
                continue
            op = _LISTS[together[0].opcode]
            text = (
                f"{len(together)} times {op} of {LEAST_BYTES:,} bytes or less, none of which needs "
                f"another's result. Pass their tensors to one xm.{op} as a list."
            )
            lines = tuple(one.line for one in together)
            yield Advice("combine", text, lines, 0, saved_starts=len(together) - 1)


def _alike(study: Study) -> list[list[Issued]]:
    found: dict[Hashable, list[Issued]] = defaultdict(list)
    for one in study.issued:
        if one.opcode in _BY_OPERANDS:
            operands = tuple(map(id, one.value.operands))
            pairs = one.collective.pairs
            dims = one.collective.dimensions
            # The results of all_gather and all_to_all may be of other shapes.
            shape = one.collective.shape
            key = (
                one.opcode,
                study.groups(one),
                pairs,
                dims,
                shape,
                study.reduction(one),
                operands,
            )
            found[key].append(one)
    return [some for some in found.values() if len(some) > 1]


def _kind(study: Study, one: Issued) -> Hashable:
    dtypes = {array.dtype for array in one.collective.operands}
    return (
        one.value.program,
        one.opcode,
        one.call,
        study.groups(one),
        one.collective.dimensions,
        study.reduction(one),
        tuple(sorted(dtypes)),
    )


def _can_be_listed(study: Study, one: Issued) -> bool:
    """Whether there is a call for it that takes a list; not if it reduces in a way without name."""
    return one.opcode in _LISTS and (one.opcode == "all-gather" or bool(study.reduction(one)))


def _is_one(study: Study, together: Sequence[Issued]) -> bool:
    """Whether a list of all of them is one instruction for the target's compiler."""
    one = together[0]
    dims = one.collective.dimensions
    found = lowered(
        _LISTS[one.opcode],
        study.target,
        study.world,
        [array for each in together for array in each.collective.operands],
        study.groups(one),
        reduction=study.reduction(one) or "sum",
        dim=dims[0] if dims else 0,
    )
    if found is None or not found.native or found.instructions != 1:
        return False
    made = became(found.module, study.target, study.world)
    return made is not None and made[1] == 1


def _levels(study: Study, some: list[Issued]) -> list[int]:
    """How many of them each has before it, one after the other: those of one level are free."""
    mine = {one.value for one in some}
    level: dict[object, int] = {}
    for value in study.values:
        most = max((level[operand] + (operand in mine) for operand in value.operands), default=0)
        level[value] = most
    return [level[one.value] for one in some]


def _name(one: Issued) -> str:
    return one.call.partition("(")[0] or one.opcode


def _operands(one: Issued) -> str:
    return ", ".join(map(str, one.collective.operands))
