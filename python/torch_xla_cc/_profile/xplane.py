"""Files of a profiler: an XSpace for each process (openxla/xla, xplane.proto)."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._hlo import protobuf

# As much as is read. Fields that stand in a oneof are as any others on the wire.
_SCHEMA = """
message XSpace { repeated XPlane planes = 1; repeated string hostnames = 4; }
message XPlane {
  int64 id = 1; string name = 2; repeated XLine lines = 3;
  map<int64, XEventMetadata> event_metadata = 4; map<int64, XStatMetadata> stat_metadata = 5;
  repeated XStat stats = 6;
}
message XLine { int64 id = 1; string name = 2; int64 timestamp_ns = 3; repeated XEvent events = 4; }
message XEvent {
  int64 metadata_id = 1; int64 offset_ps = 2; int64 duration_ps = 3; repeated XStat stats = 4;
}
message XStat {
  int64 metadata_id = 1; double double_value = 2; uint64 uint64_value = 3; int64 int64_value = 4;
  string str_value = 5; bytes bytes_value = 6; uint64 ref_value = 7;
}
message XEventMetadata { int64 id = 1; string name = 2; repeated XStat stats = 5; }
message XStatMetadata { int64 id = 1; string name = 2; }
"""
XSpace: Any = protobuf.load(_SCHEMA)["XSpace"]

_SUFFIX = ".xplane.pb"
_PROGRAMS, _TASK = "/host:metadata", "Task Environment"


class TraceError(ValueError):
    """A folder without traces, or a file that is none."""


@dataclass(frozen=True)
class Space:
    """What one process saw."""

    path: Path
    planes: tuple[Plane, ...]
    start_ns: int  # by the clock
    stop_ns: int

    @functools.cached_property
    def programs(self) -> Mapping[int, bytes]:
        """An HloProto of each, by the number that events have."""
        return {
            number: stat.bytes_value
            for plane in self.planes
            if plane.name == _PROGRAMS
            for number, event in plane.message.event_metadata.items()
            for stat in event.stats
            if stat.bytes_value
        }


@dataclass(frozen=True)
class Plane:
    """The lines of the host's threads, or those of a device."""

    name: str
    message: Any

    @functools.cached_property
    def stat_ids(self) -> Mapping[str, int]:
        """The numbers of statistics, by name."""
        return {one.name: number for number, one in self.message.stat_metadata.items()}

    def stat(self, stats: Iterable[Any], name: str) -> str | int | None:
        """A text or a number, if it is among these."""
        wanted = self.stat_ids.get(name)
        for stat in stats:
            if stat.metadata_id == wanted:
                if stat.ref_value:
                    return str(self.message.stat_metadata[stat.ref_value].name)
                return stat.str_value or int(stat.uint64_value or stat.int64_value)
        return None

    def event_name(self, event: Any) -> str:  # noqa: ANN401 (a message)
        """What it is called."""
        return str(self.message.event_metadata[event.metadata_id].name)


def spaces(folder: str | Path) -> list[Space]:
    """The newest trace below a folder, of each process: those that overlap in time with it."""
    where = Path(folder)
    if not where.is_dir():
        raise TraceError(f"{folder}: expected a folder, that torch_xla's profiler has written to")
    found = [read(path) for path in sorted(where.rglob(f"*{_SUFFIX}"))]
    if not found:
        raise TraceError(
            f"{folder}: no file in it, or below it, ends in {_SUFFIX}. Put "
            "torch_xla.debug.profiler.start_trace(DIR) and stop_trace() around some steps"
        )
    newest = max(found, key=lambda one: one.start_ns)
    return [one for one in found if one.stop_ns >= newest.start_ns]


def left_out(folder: str | Path, kept: Iterable[Space]) -> list[Path]:
    """The files below a folder that `spaces` has not kept: of another time."""
    paths = {space.path for space in kept}
    return [path for path in sorted(Path(folder).rglob(f"*{_SUFFIX}")) if path not in paths]


def read(path: Path) -> Space:
    """One file. TraceError if it is none of a profiler."""
    try:
        message = XSpace.FromString(path.read_bytes())
    except (OSError, protobuf.DecodeError) as error:
        raise TraceError(f"{path}: expected an XSpace of a profiler: {error}") from error
    planes = tuple(Plane(str(plane.name), plane) for plane in message.planes)
    start_ns = stop_ns = 0
    for plane in planes:
        if plane.name == _TASK:
            start_ns = int(plane.stat(plane.message.stats, "profile_start_time") or 0)
            stop_ns = int(plane.stat(plane.message.stats, "profile_stop_time") or 0)
    return Space(path, planes, start_ns, stop_ns)
