"""The instructions that ran, by rank."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .._hlo import proto, protobuf
from .._hlo.collectives import Collective, finder
from .threads import Threads
from .xplane import Plane, Space

_POD = re.compile(r"/device:CUSTOM:POD:(\d+)")  # as in _pod/pod_device/profile.py
_UNKNOWN = -1
_HOLDERS = frozenset({"call", "while", "conditional"})  # what runs in them has events of its own


@dataclass(frozen=True)
class Program:
    """A compiled program that ran while the trace did."""

    name: str
    collectives: dict[str, Collective]  # by the name of their instruction
    holders: frozenset[str]  # names of instructions that run others


MEET = "ranks meet"
HOST = Program("", {}, frozenset())  # where ranks that are threads meet


@dataclass(frozen=True, slots=True)
class Op:
    """An instruction, once, on one rank."""

    rank: int
    program: Program
    name: str
    begins_ns: int
    ends_ns: int

    @property
    def collective(self) -> Collective | None:
        """What it is, if it is one."""
        return self.program.collectives.get(self.name)

    @property
    def ns(self) -> int:
        """How long it took."""
        return self.ends_ns - self.begins_ns


def ops(spaces: Sequence[Space]) -> tuple[list[Op], int]:
    """Of all processes, but for what runs others; and of how many the rank is not known."""
    found: list[Op] = []
    for number, space in enumerate(spaces):
        programs = {key: _program(data) for key, data in space.programs.items()}
        for plane in space.planes:
            if "hlo_op" in plane.stat_ids:
                found += _of_plane(space, plane, programs, number)
    placed = [one for one in found if one.rank != _UNKNOWN]
    placed.sort(key=lambda one: (one.rank, one.begins_ns, -one.ends_ns))
    return placed, len(found) - len(placed)


def _program(data: bytes) -> Program:
    module = protobuf.HloModuleProtoWithConfig.FromString(data).hlo_module
    computations = list(proto.computations(module))
    return Program(
        str(module.name),
        {one.name: one for one in finder(computations).found()},
        frozenset(
            one.name for some in computations for one in some.instructions if one.opcode in _HOLDERS
        ),
    )


def _of_plane(
    space: Space, plane: Plane, programs: dict[int, Program], number: int
) -> Iterator[Op]:
    pod = _POD.fullmatch(plane.name)
    rank = int(pod[1]) if pod else number
    threads = Threads(plane)
    for who, begins, ends in threads.met:
        yield Op(who, HOST, MEET, space.start_ns + begins, space.start_ns + ends)
    for place, line in enumerate(plane.message.lines):
        begin_ns = space.start_ns + line.timestamp_ns
        for event in line.events:
            name = plane.stat(event.stats, "hlo_op")
            program = programs.get(int(plane.stat(event.stats, "program_id") or 0))
            if name is None or program is None or name in program.holders:
                continue
            if threads.shared:
                found = threads.rank(place, event.offset_ps)
                rank = _UNKNOWN if found is None else found
            begins = begin_ns + event.offset_ps // 1000
            yield Op(rank, program, str(name), begins, begins + event.duration_ps // 1000)
