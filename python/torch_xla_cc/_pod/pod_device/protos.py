"""As much of XLA's interchange format as is needed: fields of a message, by number."""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# Fields of HloModuleProto.
_PROGRAM_SHAPE, _ALIASES, _DONORS = 4, 8, 18


def fields(message: bytes | memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(number, value) of each: numbers, and the bytes of texts and messages."""
    view = memoryview(message)
    at = 0
    while at < len(view):
        tag, at = _varint(view, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(view, at)
            yield tag >> 3, value
        elif kind == _BYTES:
            size, at = _varint(view, at)
            yield tag >> 3, view[at : at + size]
            at += size
        else:
            at += {_FIXED64: 8, _FIXED32: 4}[kind]


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _written(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _message(number: int, content: bytes | memoryview) -> bytes:
    return _written(number << 3 | _BYTES) + _written(len(content)) + bytes(content)


def _inside(message: bytes, number: int) -> list[memoryview]:
    return [value for found, value in fields(message) if found == number]  # type: ignore[misc]


def numbers(packed: int | memoryview) -> list[int]:
    """A repeated number, in either form."""
    if isinstance(packed, int):
        return [packed]
    values, at = [], 0
    while at < len(packed):
        value, at = _varint(packed, at)
        values.append(value)
    return values


def donated_parameters(module: bytes) -> list[int]:
    """The parameters whose buffers outputs may take, of a HloModuleProto."""
    return sorted({*_parameters(module, _ALIASES, 2), *_parameters(module, _DONORS, 1)})


def _parameters(module: bytes, field: int, of_entry: int) -> list[int]:
    return [
        next((v for n, v in fields(entry) if n == of_entry and isinstance(v, int)), 0)
        for table in _inside(module, field)
        for entry in _inside(bytes(table), 1)
    ]


def with_config(module: bytes, replicas: int, partitions: int) -> bytes:
    """A HloModuleProtoWithConfig of a HloModuleProto."""
    (shape,) = _inside(module, _PROGRAM_SHAPE)
    config = _message(1, shape)
    config += _written(4 << 3) + _written(replicas) + _written(5 << 3) + _written(partitions)
    return _message(1, module) + _message(2, config)


def device_ids(assignment: bytes) -> list[list[int]]:
    """Of a DeviceAssignmentProto: the devices of each partition, by replica."""
    return [
        [i for number, value in fields(bytes(row)) if number == 1 for i in numbers(value)]
        for row in _inside(assignment, 3)
    ]
