"""What each collective of a program became: those before optimisation beside those after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._hlo import traffic
from .._hlo.collectives import Collective
from .._hlo.instruction import Array, Source

if TYPE_CHECKING:
    from .._ops.recording import Call

GONE = ""  # instead of an opcode: the compiler has taken it out
UNKNOWN = "?"  # there is no compiled program
HOST = "host"  # it went through the host, and is in no program

RULES = ("native", "fallback", "host")


@dataclass(frozen=True)
class Row:
    """One collective of the compiled program, or one that the compiler has taken out."""

    name: str  # of the instruction
    computation: str
    before: tuple[str, ...]  # opcodes that it was; several were combined; none: the compiler's own
    after: str  # its opcode, or GONE, UNKNOWN, HOST
    asynchronous: bool
    operands: tuple[str, ...]  # f32[4,8]
    results: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...] | None  # () is all devices
    pairs: tuple[tuple[int, int], ...] | None
    channel_id: int | None
    operand_bytes: int
    memory_bytes: int  # operands and results
    wire_bytes: int  # that come to the rank that gets most
    link_bytes: int  # over the link that carries most
    rule: str  # native, fallback or host; empty if torch_xla_cc did not make it
    why: str  # of a fallback
    call: str  # what was called
    file: str
    line: int
    meanwhile: tuple[str, ...]  # opcodes that compute while it runs
    # Where it begins and ends among the instructions of its computation.
    begins: int = 0
    ends: int = 0

    @property
    def opcode(self) -> str:
        """Its opcode, or the one that it had before; empty for what is in no program."""
        if self.after == UNKNOWN:
            return self.before[0]
        return "" if self.after in (GONE, HOST) else self.after


def rows(before: Sequence[Collective], after: Sequence[Collective], world: int) -> list[Row]:
    """A row for each collective of the compiled program; then those that are gone."""
    left = list(before)
    were = [_taken(one, left) for one in after]
    made = [
        _row(one, was or _nameless(one, left), one.opcode, world)
        for one, was in zip(after, were, strict=True)
    ]
    return made + [_row(one, [one], GONE, world) for one in left]


def not_compiled(before: Sequence[Collective], world: int) -> list[Row]:
    """A row for each collective of a program that was traced."""
    return [_row(one, [one], UNKNOWN, world) for one in before]


def through_host(call: Call) -> Row:
    """The row of a call that is in no program."""
    return Row(
        name="",
        computation="",
        before=(),
        after=HOST,
        asynchronous=False,
        operands=call.operands,
        results=call.results,
        groups=call.groups,
        pairs=None,
        channel_id=None,
        operand_bytes=call.bytes,
        memory_bytes=call.bytes,
        wire_bytes=call.bytes,
        link_bytes=call.bytes,
        rule=call.rule,
        why=call.why,
        call=call.name,
        file=call.file,
        line=call.line,
        meanwhile=(),
    )


def _taken(one: Collective, left: list[Collective]) -> list[Collective]:
    """Removes from `left` what became this one.

    A compiler keeps the metadata of what it changes, and that of the first of those it combines.
    """
    same = [old for old in left if _same_call(old, one)]
    if not same:
        return []
    # A line in a loop makes several of the same name.
    was = max(same, key=lambda old: (old.opcode == one.opcode, old.operands == one.operands))
    left.remove(was)
    taken = [was]
    missing = list(one.operands)
    _without(missing, was)
    for old in list(left) if missing else ():
        alike = (old.opcode, old.groups, old.pairs) == (was.opcode, was.groups, was.pairs)
        if alike and _without(missing, old):
            left.remove(old)
            taken.append(old)
    return taken


def _nameless(one: Collective, left: list[Collective]) -> list[Collective]:
    """Removes from `left` the first that may have become this one, which has lost its metadata.

    As the all-reduce has that a TPU's compiler makes of a small reduce-scatter.
    """
    if one.source.op_name or one.opcode != "all-reduce":
        return []
    for old in left:
        if old.opcode == "reduce-scatter" and _same_operands(old, one):
            left.remove(old)
            return [old]
    return []


def _same_operands(old: Collective, new: Collective) -> bool:
    return (old.groups, old.pairs) == (new.groups, new.pairs) and old.operands == new.operands


def _same_call(old: Collective, new: Collective) -> bool:
    if old.source.op_name or new.source.op_name:
        return old.source == new.source
    return _same_operands(old, new)


def _without(arrays: list[Array], old: Collective) -> bool:
    """Takes the operands of `old` out of the list, if it has all of them."""
    rest = list(arrays)
    for operand in old.operands:
        if operand not in rest:
            return False
        rest.remove(operand)
    arrays[:] = rest
    return True


def _row(one: Collective, was: list[Collective], after: str, world: int) -> Row:
    source = one.source if one.source.op_name or not was else was[0].source
    call, rule, why = how(source)
    runs = after != GONE
    return Row(
        name=one.name,
        computation=one.computation,
        before=tuple(old.opcode for old in was),
        after=after,
        asynchronous=one.asynchronous,
        operands=tuple(map(str, one.operands)),
        results=tuple(map(str, one.results)),
        groups=one.groups,
        pairs=one.pairs,
        channel_id=one.channel_id,
        operand_bytes=one.operand_bytes,
        memory_bytes=sum(array.bytes for array in (*one.operands, *one.results)),
        wire_bytes=round(traffic.received(one, world)) if runs else 0,
        link_bytes=round(traffic.per_link(one, world)) if runs else 0,
        rule=rule,
        why=why,
        call=call,
        file=source.file,
        line=source.line,
        meanwhile=tuple(step.opcode for step in one.meanwhile),
        begins=one.begins,
        ends=one.ends,
    )


def how(source: Source) -> tuple[str, str, str]:
    """(call, rule, why) of what our lowering writes into metadata: "name rule: why"."""
    if not source.op_type.startswith("xla_cc."):
        return source.op_name, "", ""
    name, _, why = source.op_name.partition(": ")
    call, _, rule = name.rpartition(" ")
    return (call, rule, why) if rule in RULES else (source.op_name, "", "")
