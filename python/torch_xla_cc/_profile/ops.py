"""The instructions that ran, by rank."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .._hlo import proto, protobuf
from .._hlo.collectives import Collective, finder
from .ranks import numbers
from .threads import Threads
from .xplane import Plane, Space, TraceError

_POD = re.compile(r"/device:CUSTOM:POD:(\d+)")  # as in _pod/pod_device/profile.py
_UNKNOWN = -1
_HOLDERS = frozenset({"call", "while", "conditional"})  # what runs in them has events of its own


@dataclass(frozen=True)
class Program:
    """A compiled program that ran while the trace did."""

    name: str
    collectives: dict[str, Collective]  # by the name of their instruction
    holders: frozenset[str]  # names of instructions that run others
    ranks: int = 0  # for so many it was compiled, if it says so


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


@dataclass(frozen=True)
class Ran:
    """What the processes of a job ran."""

    ops: list[Op]  # in order of time, rank by rank; not what only runs others
    on_host: list[tuple[Op, ...]]  # where ranks that are threads met
    unknown: int  # instructions of which it is not known whose they are
    are_guessed: bool  # ranks are numbered as the traces come


def ran(spaces: Sequence[Space]) -> Ran:
    """Of the traces of all processes."""
    found: list[Op] = []
    on_host: list[tuple[Op, ...]] = []
    by_path = None  # asked for where events do not say whose they are
    for place, space in enumerate(spaces):
        try:
            programs = {key: _program(data) for key, data in space.programs.items()}
        except (protobuf.DecodeError, ValueError) as error:
            raise TraceError(f"{space.path}: a program in it cannot be read: {error}") from error
        for plane in space.planes:
            if "hlo_op" not in plane.stat_ids:
                continue
            threads = Threads(plane)
            if pod := _POD.fullmatch(plane.name):
                rank = int(pod[1])
            elif threads.shared:
                rank = _UNKNOWN
            else:
                by_path = by_path or numbers(spaces)
                rank = by_path.ranks[place]
            found += _of_plane(space, plane, threads, programs, rank)
            for ends, came in threads.meetings():
                times = [(rank, space.start_ns + at) for rank, at in sorted(came.items())]
                until = space.start_ns + ends
                on_host.append(tuple(Op(rank, HOST, MEET, at, until) for rank, at in times))
    placed = [one for one in found if one.rank != _UNKNOWN]
    placed.sort(key=lambda one: (one.rank, one.begins_ns, -one.ends_ns))
    are_guessed = by_path is not None and by_path.are_guessed
    return Ran(placed, on_host, len(found) - len(placed), are_guessed)


def _program(data: bytes) -> Program:
    module = protobuf.HloModuleProtoWithConfig.FromString(data).hlo_module
    devices = module.device_assignment
    computations = list(proto.computations(module))
    return Program(
        str(module.name),
        {one.name: one for one in finder(computations).found()},
        frozenset(
            one.name for some in computations for one in some.instructions if one.opcode in _HOLDERS
        ),
        int(devices.replica_count * devices.computation_count),
    )


def _of_plane(
    space: Space, plane: Plane, threads: Threads, programs: dict[int, Program], rank: int
) -> Iterator[Op]:
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
