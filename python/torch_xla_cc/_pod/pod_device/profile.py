"""What jaxlib's profiler sees of this process, as planes for the trace of its rank.

The trace of torch_xla takes in a serialized XSpace (openxla/xla, xplane.proto). The host's plane
becomes that of a device, as a rank has one of the host itself; times count from 1970, as torch_xla
subtracts the begin of its own trace.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import protos

# Fields of XSpace, XPlane and XLine; of XEventMetadata, XStat.
_PLANES = 1
_NAME, _LINES, _STAT_METADATA, _STATS = 2, 3, 5, 6
_TIMESTAMP_NS = 3
_HOST, _PROGRAMS, _TASK = "/host:CPU", "/host:metadata", "Task Environment"
_DEVICE = "/device:CUSTOM:POD:"  # TensorBoard shows what begins so far as /device:CUSTOM:


class Profile:
    """A trace that runs."""

    def __init__(self) -> None:
        import jaxlib._profiler as _profiler  # type: ignore[import-untyped,import-not-found,unused-ignore]

        options = _profiler.ProfileOptions()
        options.python_tracer_level = 0  # no functions of this process's Python
        options.host_tracer_level = 3
        self._session = _profiler.ProfilerSession(options)

    def end(self, rank: int) -> bytes:
        """End it; the planes of what was seen."""
        space: bytes = self._session.stop()
        planes = {_name(plane): plane for plane in protos.inside(space, _PLANES)}
        start_ns = _start_ns(planes[_TASK]) if _TASK in planes else 0
        made = b""
        if _HOST in planes:
            made += protos.bytes_field(_PLANES, _moved(planes[_HOST], f"{_DEVICE}{rank}", start_ns))
        if _PROGRAMS in planes:
            made += protos.bytes_field(_PLANES, planes[_PROGRAMS])
        return made


def _name(plane: bytes | memoryview) -> str:
    return next((str(text, "utf-8") for text in protos.inside(plane, _NAME)), "")


def _moved(plane: memoryview, name: str, start_ns: int) -> bytes:
    """The plane under that name, its lines in the time of the clock."""
    return (
        protos.without(plane, _NAME, _LINES)
        + protos.bytes_field(_NAME, name.encode())
        + b"".join(_lines(plane, start_ns))
    )


def _lines(plane: memoryview, start_ns: int) -> Iterator[bytes]:
    for line in protos.inside(plane, _LINES):
        begins = protos.number(line, _TIMESTAMP_NS) + start_ns
        rest = protos.without(line, _TIMESTAMP_NS)
        yield protos.bytes_field(_LINES, rest + protos.number_field(_TIMESTAMP_NS, begins))


def _start_ns(plane: memoryview) -> int:
    """Of the plane of the task: the statistic named profile_start_time."""
    names = {}
    for entry in protos.inside(plane, _STAT_METADATA):
        for stat in protos.inside(entry, 2):
            names[protos.number(entry, 1)] = _name(stat)
    for stat in protos.inside(plane, _STATS):
        if names.get(protos.number(stat, 1)) == "profile_start_time":
            return protos.number(stat, 3)  # uint64_value
    return 0
