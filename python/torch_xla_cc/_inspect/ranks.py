"""The programs of all ranks of a job, compared, and the traffic that they make together."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from google.protobuf import text_format  # type: ignore[import-untyped,unused-ignore]

from .. import _aot
from .._hlo import proto, protobuf
from .._ops.recording import Call
from .capture import Capture
from .compiled import check_target, is_cpu
from .report import Report, of_traced
from .rows import HOST
from .trace import Traced
from .words import WIDTH

_LONGEST = 80  # characters of an instruction's attributes
_NOT_SHOWN = {"name", "opcode", "shape", "metadata", "id", "operand_ids"}
T = TypeVar("T")
Programs = tuple[Traced, ...]  # of a rank; several if it reads within the step


@dataclasses.dataclass(frozen=True)
class Place:
    """A collective or an instruction of a rank's program; that of its end has no text."""

    rank: int
    text: str
    file: str
    line: int

    def __str__(self) -> str:
        where = f" of {self.file}:{self.line}" if self.file else ""
        return f"rank {self.rank}: {self.text or 'nothing more'}{where}"


@dataclasses.dataclass(frozen=True)
class Divergence:
    """Where the programs of two ranks part."""

    index: int  # of the collective, or of the instruction, counted from 0
    places: tuple[Place, Place]

    def __str__(self) -> str:
        return "; ".join(map(str, self.places))


@dataclasses.dataclass(frozen=True)
class RanksReport:
    """What the ranks of a job would run, for one target."""

    target: str
    world: int
    reports: tuple[Report, ...]  # of each rank, before a compiler has seen its program
    # The ranks that have one program, for each program.
    programs: tuple[tuple[int, ...], ...]
    # The first collective that ranks do not have in common: they would hang, or go wrong.
    divergence: Divergence | None
    # The first instruction that they do not have in common, such as a constant by rank: each of
    # these programs is compiled.
    difference: Divergence | None

    def traffic(self) -> list[list[int]]:
        """Bytes from each rank, a row, to each other, a column."""
        matrix = {ranks[0]: self.reports[ranks[0]].traffic() for ranks in self.programs}
        of = {rank: ranks[0] for ranks in self.programs for rank in ranks}
        return [matrix[of[rank]][rank] for rank in range(self.world)]

    def to_json(self) -> str:
        """The verdict, the traffic and a report for each program, for other programs to read."""
        found = {
            "version": 1,
            "target": self.target,
            "world": self.world,
            "programs": self.programs,
            "divergence": self.divergence and dataclasses.asdict(self.divergence),
            "difference": self.difference and dataclasses.asdict(self.difference),
            "traffic": self.traffic(),
            "reports": [json.loads(self.reports[ranks[0]].to_json()) for ranks in self.programs],
        }
        return json.dumps(found, indent=2)

    @property
    def verdict(self) -> str:
        """Whether they have one program, and where they part if not."""
        ranks = f"{self.world} ranks for {self.target}: "
        if self.divergence:
            return f"{ranks}collective {self.divergence.index} differs. {self.divergence}"
        if self.difference:
            return (
                f"{ranks}the same collectives in {len(self.programs)} programs, which first differ "
                f"at instruction {self.difference.index}. {self.difference}"
            )
        return f"{ranks}one program"

    def to_text(self, width: int = WIDTH) -> str:
        """For people: what differs, and the collectives of the first rank."""
        sent = [sum(line) for line in self.traffic()]
        total = f"{sum(sent):,} bytes between ranks, {max(sent):,} at most from one of them"
        return "\n".join([self.verdict, total, self.reports[0].to_text(width)])


def compare_ranks(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int | None = None,
    *,
    target: str = "cpu",
    step: int = 1,
    timeout_s: float | None = None,
) -> RanksReport:
    """Trace what every rank of a job would run, without its devices, and compare their programs.

    Args:
      fn: `fn(rank, *args)` runs as under `launch`, on virtual CPU devices, up to the end of its
        step. That step is traced only.
      nprocs: the number of ranks; that of the target's topology if None.
      target: what the job is for, such as `"tpu:v5e:4x4"`.
      step: which of the steps that have collectives. What is pending at the end of `fn` is one.
      timeout_s: how long ranks wait for each other, as of launch.
    """
    title = getattr(fn, "__qualname__", type(fn).__name__)
    world = world_of(target, nprocs)
    if isinstance(step, bool) or not isinstance(step, int) or step < 1:
        raise ValueError(f"compare_ranks: step = {step!r}, but it must be an int from 1")
    return of_programs(Capture(title, target, world, step, timeout_s).run(fn, args))


def world_of(target: str, nprocs: int | None) -> int:
    """The number of ranks. ValueError if it is not known, or no such target exists."""
    check_target(target)
    devices = None if is_cpu(target) else _aot.parse_target(target).devices
    if nprocs is None and devices is None:
        raise ValueError(f"target = {target!r} does not say how many ranks there are. Give nprocs")
    if nprocs is not None and devices is not None and nprocs != devices:
        raise ValueError(f"nprocs = {nprocs}, but target = {target!r} has {devices} devices")
    return nprocs or devices or 1


def of_programs(programs: Sequence[Programs]) -> RanksReport:
    """Of the programs of each rank."""
    plain = {module: without_lines(module) for module in {p.module for s in programs for p in s}}
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for rank, some in enumerate(programs):
        keys = tuple(_call_key(call) for call in _issued(some))
        alike[tuple(plain[one.module] for one in some), keys].append(rank)
    groups = tuple(map(tuple, alike.values()))
    reports = {ranks[0]: of_traced(programs[ranks[0]]) for ranks in groups}
    of = {rank: ranks[0] for ranks in groups for rank in ranks}
    divergences = [_first_call(programs, ranks[0]) for ranks in groups[1:]]
    divergence = min(filter(None, divergences), key=lambda one: one.index, default=None)
    return RanksReport(
        target=programs[0][0].target,
        world=len(programs),
        reports=tuple(reports[of[rank]] for rank in range(len(programs))),
        programs=groups,
        divergence=divergence,
        difference=None
        if divergence or len(groups) == 1
        else _first_instruction(programs, groups[1][0]),
    )


def _issued(programs: Programs) -> list[Call]:
    """What all ranks have to issue alike. Of what goes through the host the two ends differ."""
    return [call for one in programs for call in one.calls if call.rule != HOST]


def _call_key(call: Call) -> Hashable:
    return (call.op, call.name, call.operands, call.results, call.groups)


def _first_call(programs: Sequence[Programs], other: int) -> Divergence | None:
    """The first collective that rank 0 and the other do not have in common."""
    return _first(
        programs,
        other,
        items=_issued,
        key=_call_key,
        place=lambda rank, call: Place(
            rank, f"{call.name} of {', '.join(call.operands)}", call.file, call.line
        ),
    )


def _first_instruction(programs: Sequence[Programs], other: int) -> Divergence | None:
    """The first instruction that rank 0 and the other do not have in common."""
    return _first(
        programs,
        other,
        items=_instructions,
        key=_instruction_key,
        place=lambda rank, one: Place(
            rank, _instruction_text(one), one.metadata.source_file, one.metadata.source_line
        ),
    )


def _first(
    programs: Sequence[Programs],
    other: int,
    items: Callable[[Programs], Sequence[T]],
    key: Callable[[T], Hashable],
    place: Callable[[int, T], Place],
) -> Divergence | None:
    pairs = itertools.zip_longest(items(programs[0]), items(programs[other]))
    for index, (a, b) in enumerate(pairs):
        if a is None or b is None or key(a) != key(b):
            places = (
                Place(rank, "", "", 0) if there is None else place(rank, there)
                for rank, there in ((0, a), (other, b))
            )
            return Divergence(index, (next(places), next(places)))
    return None


def _parsed(module: bytes) -> protobuf.Message:
    return protobuf.HloModuleProto.FromString(module)


def _instructions(programs: Programs) -> list[protobuf.Message]:
    return [
        instruction
        for one in programs
        for computation in _parsed(one.module).computations
        for instruction in computation.instructions
    ]


def without_lines(module: bytes) -> bytes:
    """The same for programs that differ in what names their instructions only."""
    parsed = _parsed(module)
    for computation in parsed.computations:
        for instruction in computation.instructions:
            instruction.ClearField("metadata")
    return bytes(parsed.SerializeToString(deterministic=True))


def _instruction_key(instruction: protobuf.Message) -> Hashable:
    plain = protobuf.HloInstructionProto.FromString(instruction.SerializeToString())
    plain.ClearField("metadata")
    return bytes(plain.SerializeToString(deterministic=True))


def _instruction_text(instruction: protobuf.Message) -> str:
    rest = protobuf.HloInstructionProto.FromString(instruction.SerializeToString())
    rest.literal.ClearField("shape")
    for field, value in rest.ListFields():
        if field.name in _NOT_SHOWN or str(value) == "":
            rest.ClearField(field.name)
    attributes = text_format.MessageToString(rest, as_one_line=True)[:_LONGEST]
    return f"{instruction.opcode} {proto.type_text(instruction.shape)} {attributes}".rstrip()
