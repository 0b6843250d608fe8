"""Which collectives of a traced program each of the compiled one was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from .._hlo.collectives import Collective
from .._hlo.instruction import Array, Groups

_Key = tuple[str, int]  # what is left of a shape that a compiler may change: type and elements


def matched(
    before: Sequence[Collective], after: Sequence[Collective]
) -> tuple[list[list[Collective]], list[Collective]]:
    """What each of those after was, and those that are gone. One may have become several.

    A compiler keeps the metadata of what it changes, and that of one of those it combines. What it
    makes anew has none: a reduce-scatter as a fusion, an all-reduce instead.
    """
    left = list(before)
    were = [_named(one, left) for one in after]
    for one, was in zip(after, were, strict=True):
        if was:
            _combined(one, was, left)
    for one, was in zip(after, were, strict=True):
        if not was and not one.source.op_name:
            _combined(one, was, left)
    for one, was in zip(after, were, strict=True):
        if len(was) < 2 and len(one.operands) == 1:
            _flattened(one, was, left, before)
    became = dict(zip(after, were, strict=True))
    for old in before:
        if old in left or len(old.operands) > 1:
            _divided(old, became, left, before)
    return were, left


def _named(one: Collective, left: list[Collective]) -> list[Collective]:
    """Removes from `left` the one that has the same metadata."""
    was, best = None, (False, False, False)
    operands, elements = one.operands, _elements(one)
    for i, old in enumerate(left):
        if not _same_call(old, one):
            continue
        # A line in a loop makes several of the same name.
        same_size = _elements(old) == elements  # in another type, or with dimensions of one
        alike = old.opcode == one.opcode, old.operands == operands, same_size
        if was is None or alike > best:
            was, best = i, alike
        if all(alike):
            break
    return [] if was is None else [left.pop(was)]


def _combined(one: Collective, was: list[Collective], left: list[Collective]) -> None:
    """Removes from `left`, and adds, what else became this one: as much as it has operands for."""
    if was and len(one.operands) == 1:
        return  # it is that one, in another type perhaps
    missing = [_key(array) for array in one.operands]
    for old in was:
        _take(missing, old, one)
    for old in list(left) if missing else ():
        if _may_become(old, one) and _take(missing, old, one):
            left.remove(old)
            was.append(old)


def _flattened(
    one: Collective, was: list[Collective], left: list[Collective], before: Sequence[Collective]
) -> None:
    """The same of a GPU's compiler, which makes one vector of several operands: of some that follow
    each other."""
    dtype, wanted = _key(one.operands[0])
    free = {id(old) for old in (*left, *was)}
    some = [old for old in before if id(old) in free and _may_become(old, one)]
    sizes = [
        sum(array.elements for array in old.operands)
        if {array.dtype for array in old.operands} == {dtype}
        else wanted + 1
        for old in some
    ]
    for first in range(len(some)):
        last, total = first, 0
        while last < len(some) and total < wanted:
            total += sizes[last]
            last += 1
        run = some[first:last]
        if total == wanted and len(run) > 1 and all(any(old is it for it in run) for old in was):
            left[:] = [old for old in left if not any(old is it for it in run)]
            was[:] = run
            return


def _divided(
    old: Collective,
    became: Mapping[Collective, list[Collective]],
    left: list[Collective],
    before: Sequence[Collective],
) -> None:
    """Adds it to all that it became: a TPU's compiler takes lists apart, and has its own types.

    Those have no metadata, or that of the call around it; not that of another collective.
    """
    having = [one for one, was in became.items() if was == [old]]
    if not having and old not in left:
        return  # it is combined with others
    others = {other.source for other in before if other.source.op_name} - {old.source}
    for opcode in {one.opcode for one in having} or (old.opcode, "all-reduce"):
        missing = Counter(array.bytes for array in _brought(old, opcode))
        missing -= Counter(array.bytes for one in having for array in one.operands)
        parts = []
        for one, was in became.items():
            if was or one.opcode != opcode or one.source in others or not _may_become(old, one):
                continue
            sizes = Counter(array.bytes for array in one.operands)
            if not sizes - missing:
                missing -= sizes
                parts.append(one)
        if not missing:
            for one in parts:
                became[one].append(old)
            left[:] = [one for one in left if one is not old]
            return


def _brought(old: Collective, opcode: str) -> Sequence[Array]:
    """What it takes as such an instruction.

    An all-gather becomes the sum of all that it gives, with zeros where others' data are.
    """
    return old.results if (old.opcode, opcode) == ("all-gather", "all-reduce") else old.operands


def _may_become(old: Collective, new: Collective) -> bool:
    if (_all(old.groups), old.pairs or ()) != (_all(new.groups), new.pairs or ()):
        return False
    halves = ("all-gather", "reduce-scatter") if new.opcode == "all-reduce" else ()
    return old.opcode == new.opcode or old.opcode in halves


def _take(missing: list[_Key], old: Collective, new: Collective) -> bool:
    """Takes what `old` brings to it out of the list, if all of that is there."""
    rest = list(missing)
    for array in _brought(old, new.opcode):
        if _key(array) not in rest:
            return False
        rest.remove(_key(array))
    missing[:] = rest
    return True


def _same_call(old: Collective, new: Collective) -> bool:
    if old.source.op_name or new.source.op_name:
        # The stages of a call have one source.
        is_other_stage = old.opcode == new.opcode and _all(old.groups) != _all(new.groups)
        return old.source == new.source and not is_other_stage
    return _may_become(old, new) and old.operands == new.operands


def _elements(one: Collective) -> list[int]:
    return [array.elements for array in one.operands]


def _key(array: Array) -> _Key:
    return array.dtype, array.elements


def _all(groups: Groups | None) -> Groups:
    """One group of all has two forms."""
    one = groups[0] if groups and len(groups) == 1 else (-1,)
    return () if one == tuple(range(len(one))) else groups or ()
