"""As much of XLA's interchange format as is needed: fields of a message, by number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# Fields of HloModuleProto.
_PROGRAM_SHAPE, _ALIASES, _DONORS = 4, 8, 18


def fields(message: bytes | memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(number, value) of each: numbers, and the bytes of texts and messages."""
    for number, value, _ in _spans(message):
        if value is not None:
            yield number, value


def without(message: bytes | memoryview, *numbers: int) -> bytes:
    """The message without these fields."""
    return b"".join(raw for number, _, raw in _spans(message) if number not in numbers)


def _spans(
    message: bytes | memoryview,
) -> Iterator[tuple[int, int | memoryview | None, memoryview]]:
    """(number, value, all of its bytes) of each."""
    view = memoryview(message)
    at = 0
    while at < len(view):
        start = at
        value: int | memoryview | None = None
        tag, at = _varint(view, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(view, at)
        elif kind == _BYTES:
            size, at = _varint(view, at)
            value = view[at : at + size]
            at += size
        else:
            at += {_FIXED64: 8, _FIXED32: 4}[kind]
        yield tag >> 3, value, view[start:at]


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


def only(message: bytes | memoryview, *numbers: int) -> bytes:
    """These fields of the message."""
    return b"".join(raw for number, _, raw in _spans(message) if number in numbers)


def numbers_field(number: int, values: Sequence[int]) -> bytes:
    """A field that is a repeated number."""
    return bytes_field(number, b"".join(map(_written, values))) if values else b""


def number_field(number: int, value: int) -> bytes:
    """A field that is a number."""
    return _written(number << 3) + _written(value)


def bytes_field(number: int, content: bytes | memoryview) -> bytes:
    """A field that is a text or a message."""
    return _written(number << 3 | _BYTES) + _written(len(content)) + bytes(content)


def inside(message: bytes | memoryview, number: int) -> list[memoryview]:
    """The texts or messages of a field."""
    return [value for found, value in fields(message) if found == number]  # type: ignore[misc]


def number(message: bytes | memoryview, field: int) -> int:
    """A field that is a number: 0 if it is not there."""
    return next((v for n, v in fields(message) if n == field and isinstance(v, int)), 0)


def numbers_of(message: bytes | memoryview, field: int) -> list[int]:
    """A field that is a repeated number."""
    return [i for n, value in fields(message) if n == field for i in numbers(value)]


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
        number(entry, of_entry)
        for table in inside(module, field)
        for entry in inside(bytes(table), 1)
    ]


def with_config(module: bytes, replicas: int, partitions: int) -> bytes:
    """A HloModuleProtoWithConfig of a HloModuleProto."""
    (shape,) = inside(module, _PROGRAM_SHAPE)
    config = bytes_field(1, shape)
    config += number_field(4, replicas) + number_field(5, partitions)
    return bytes_field(1, module) + bytes_field(2, config)


def device_ids(assignment: bytes) -> list[list[int]]:
    """Of a DeviceAssignmentProto: the devices of each partition, by replica."""
    return [numbers_of(row, 1) for row in inside(assignment, 3)]
