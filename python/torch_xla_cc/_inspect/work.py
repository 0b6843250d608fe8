"""What a program asks of its links, however its collectives are lowered."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Work:
    """A collective as it was called."""

    opcode: str
    operand_bytes: int
    groups: Groups | None
    pairs: tuple[tuple[int, int], ...] | None = None


def asked(found: Finder, some: Iterable[Collective]) -> Iterator[Transfer]:
    """These, of a program that no compiler has seen; what is lowered to several instructions, or in
    a fallback, as the one that was called."""
    seen = set()
    for one in some:
        call = _call_of(found, one)
        work = _work(found, call, one) if call else None
        if work is None:
            yield one
        elif call not in seen:
            seen.add(call)
            yield work


def _call_of(found: Finder, one: Collective) -> str:
    """The computation that a call was lowered to; "" if the collective is none of ours."""
    if one.in_entry or not one.source.op_type.startswith(_OURS):
        return ""
    name = one.computation
    if name.startswith(_ORDERED):
        name = found.callers.get(name, name)
    return name if name in found.callers else ""


def _work(found: Finder, call: str, one: Collective) -> Work | None:
    opcode = _OPS.get(one.source.op_type.removeprefix(_OURS))
    groups = _GROUPS.search(one.source.op_name)
    if opcode is None or groups is None or call not in found.signatures:
        return None
    takes, gives = found.signatures[call]
    if len(takes) > 1 and _is_token(takes) and _is_token(gives):
        takes = takes[:-1]
    if groups["compact"]:
        listed = attributes.groups(groups["compact"])
    else:
        listed = tuple(map(tuple, json.loads(groups["lists"] or "[]")))
    return Work(opcode, sum(array.bytes for array in takes), listed)


def _is_token(arrays: Sequence[Array]) -> bool:
    return len(arrays) > 1 and arrays[-1] == _TOKEN
