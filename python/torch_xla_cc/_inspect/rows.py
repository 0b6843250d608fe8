"""What each collective of a program became: those before optimisation beside those after it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from .._hlo import traffic
from .._hlo.collectives import Collective
from .._hlo.effort import Effort
from .._hlo.instruction import Array, Instruction, Source
from .._hlo.links import busiest
from .._hlo.topology import topology_of
from .matches import matched

if TYPE_CHECKING:
    from .._ops.recording import Call

GONE = ""  # instead of an opcode: the compiler has taken it out
UNKNOWN = "?"  # there is no compiled program
HOST = "host"  # it went through the host, and is in no program

# While a chip reads or writes a byte of its memory it multiplies about so often: for 16 bits, by
# what is published, 115 on TPU v4, 120 on v5e, 83 on v5p, 280 on v6e; 76 on A100, 148 on H100.
PRODUCTS_PER_BYTE = 120

_HOW = re.compile(r"(.+?) (native|fallback|host)(?:: (.*)| \((.*)\))?", re.S)


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
    wire_bytes: int  # received by the rank that receives most
    link_bytes: int  # over the busiest link
    rule: str  # native, fallback or host; empty if torch_xla_cc did not make it
    why: str  # of a fallback
    call: str  # what was called
    file: str
    line: int
    meanwhile: tuple[str, ...]  # what computes while it runs: "fusion (dot) of train.py:7"
    # Where it begins and ends among the instructions of its computation.
    begins: int = 0
    ends: int = 0
    in_loop: bool = False  # bytes are those of one time round
    calls: tuple[tuple[str, int], ...] = ()  # file and line of each that it was
    first_part: bool = True  # not a further one of several that a list was taken apart into
    # That what computes meanwhile reads and writes, or could in the time of its products.
    beside_bytes: int = 0

    @property
    def compiled(self) -> bool:
        """Whether it is an instruction of the compiled program."""
        return self.after not in (GONE, UNKNOWN, HOST)

    @property
    def overlaps(self) -> bool:
        """Whether enough computes meanwhile to speak of.

        Memory is about ten times as fast as links. So what takes no longer than to read and write
        fewer bytes than a rank receives is done in a small part of the time.
        """
        return bool(self.meanwhile) and self.beside_bytes >= self.wire_bytes

    @property
    def beside(self) -> tuple[str, ...]:
        """What computes while it runs, without its lines."""
        return tuple(one.partition(" of ")[0] for one in self.meanwhile)

    @property
    def opcode(self) -> str:
        """Its opcode, or the one that it had before; empty for what is in no program."""
        if self.after == UNKNOWN:
            return self.before[0]
        return "" if self.after in (GONE, HOST) else self.after


def rows(
    before: Sequence[Collective], after: Sequence[Collective], world: int, target: str = ""
) -> list[Row]:
    """A row for each collective of the compiled program; then those that are gone."""
    were, gone = matched(before, after)
    handed = handed_on(after)
    made = []
    seen: set[Collective] = set()
    for one, was in zip(after, were, strict=True):
        row = _row(one, was, one.opcode, world, target)
        steps = zip(one.meanwhile, one.efforts, strict=True)
        beside = sum(touched(step, effort, handed[step]) for step, effort in steps)
        made.append(replace(row, first_part=seen.isdisjoint(was), beside_bytes=beside))
        seen.update(was)
    return made + [_row(one, [one], GONE, world, target) for one in gone]


def not_compiled(before: Sequence[Collective], world: int, target: str = "") -> list[Row]:
    """A row for each collective of a program that was traced."""
    return [_row(one, [one], UNKNOWN, world, target) for one in before]


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


def _row(one: Collective, was: list[Collective], after: str, world: int, target: str) -> Row:
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
        link_bytes=busiest([one], topology_of(target, world), world) if runs else 0,
        rule=rule,
        why=why,
        call=call,
        file=source.file,
        line=source.line,
        meanwhile=tuple(map(named, one.meanwhile)),
        begins=one.begins,
        ends=one.ends,
        in_loop=one.in_loop,
        calls=tuple((old.source.file, old.source.line) for old in was),
    )


def handed_on(after: Sequence[Collective]) -> dict[Instruction, list[Collective]]:
    """The collectives that are spread over fusions, by those that compute beside them."""
    found: dict[Instruction, list[Collective]] = defaultdict(list)
    for one in after:
        for step in one.meanwhile if one.in_chain else ():
            found[step].append(one)
    return found


def touched(step: Instruction, effort: Effort, handed: Sequence[Collective]) -> int:
    """The bytes that it reads and writes, but for those of collectives that it hands on; or that it
    could in the time that its products take.

    What hands one on takes what that takes and gives, and gives that, with what has come so far.
    """
    reads, writes = list(effort.reads), effort.writes
    theirs = Counter(array for one in handed for array in (*one.operands, *one.results))
    theirs_given = theirs + Counter(array for one in handed for array in one.results)
    for place, operand in enumerate(step.operands):
        both = Counter(operand.arrays) & theirs
        theirs -= both
        reads[place] = max(0, reads[place] - _bytes(both))
    writes = max(0, writes - _bytes(Counter(step.arrays) & theirs_given))
    return max(sum(reads) + writes, effort.products // PRODUCTS_PER_BYTE)


def _bytes(arrays: Counter[Array]) -> int:
    return sum(array.bytes for array in arrays.elements())


def named(step: Instruction) -> str:
    """What computes, and where it is from."""
    name = step.opcode
    if step.custom_call_target or step.holds:
        name += f" ({step.custom_call_target or step.holds})"
    place = step.source
    return f"{name} of {PurePath(place.file).name}:{place.line}" if place.file else name


def how(source: Source) -> tuple[str, str, str]:
    """(call, rule, why) of what our lowering writes into metadata: "name rule: why (ways)"."""
    found = _HOW.fullmatch(source.op_name) if source.op_type.startswith("xla_cc.") else None
    return (found[1], found[2], found[3] or found[4] or "") if found else (source.op_name, "", "")
