"""What a program asks of its links, however its collectives are lowered."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from .._hlo import attributes
from .._hlo.collectives import Collective, Finder
from .._hlo.instruction import Array, Groups
from .._hlo.traffic import Transfer

# What the operands of a call say all about.
_OPS = {
    "all_gather": "all-gather",
    "all_reduce": "all-reduce",
    "all_to_all": "all-to-all",
    "collective_broadcast": "collective-broadcast",
    "reduce_scatter": "reduce-scatter",
}
_OURS = "xla_cc."
# Lists; or, of many ranks, XLA's compact form.
_GROUPS = re.compile(
    r"\bgroups=(?:world|(?P<lists>\[\[[\d,\[\]]*\]\])|(?P<compact>\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?))"
)
# On CPU threads the lowering has an instruction in a computation of its own, so named.
_ORDERED = "ordered_"
_TOKEN = Array("s32", (1,))


@dataclasses.dataclass(frozen=True)
class Work:
    """A collective as it was called."""

    opcode: str
    operand_bytes: int
    groups: Groups | None
    pairs: tuple[tuple[int, int], ...] | None = None


def asked(
    found: Finder, before: Sequence[Collective], lives: Iterable[Collective]
) -> Iterator[Transfer]:
    """Those that live, of a program that no compiler has seen; what is lowered to several
    instructions, or in a fallback, as the one that was called: for each operand, if they have
    instructions of their own."""
    of_calls: dict[str, list[Collective]] = defaultdict(list)
    for one in before:
        of_calls[_call_of(found, one)].append(one)
    seen = set()
    for one in lives:
        call = _call_of(found, one)
        works = _works(found, call, one) if call else []
        if not works:
            yield one
            continue
        place = _place(of_calls[call], one, len(works))
        if (call, place) not in seen:
            seen.add((call, place))
            yield works[place] if place is not None else _together(works)


def _place(members: Sequence[Collective], one: Collective, operands: int) -> int | None:
    """Which operand it moves, of those of its call, if each has as many instructions as another."""
    if len(members) % operands or any(len(member.operands) > 1 for member in members):
        return None
    at = next(i for i, member in enumerate(members) if member is one)
    return at // (len(members) // operands)


def _together(works: Sequence[Work]) -> Work:
    return dataclasses.replace(works[0], operand_bytes=sum(work.operand_bytes for work in works))


def _call_of(found: Finder, one: Collective) -> str:
    """The computation that a call was lowered to; "" if the collective is none of ours."""
    if one.in_entry or not one.source.op_type.startswith(_OURS):
        return ""
    name = one.computation
    if name.startswith(_ORDERED):
        name = found.callers.get(name, name)
    return name if name in found.callers else ""


def _works(found: Finder, call: str, one: Collective) -> list[Work]:
    """What was called, for each operand; nothing if that is not known."""
    opcode = _OPS.get(one.source.op_type.removeprefix(_OURS))
    groups = _GROUPS.search(one.source.op_name)
    if opcode is None or groups is None or call not in found.signatures:
        return []
    takes, gives = found.signatures[call]
    if len(takes) > 1 and _is_token(takes) and _is_token(gives):
        takes = takes[:-1]
    if groups["compact"]:
        listed = attributes.groups(groups["compact"])
    else:
        listed = tuple(map(tuple, json.loads(groups["lists"] or "[]")))
    return [Work(opcode, array.bytes, listed) for array in takes]


def _is_token(arrays: Sequence[Array]) -> bool:
    return len(arrays) > 1 and arrays[-1] == _TOKEN
