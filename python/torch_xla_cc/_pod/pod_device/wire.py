"""Messages between a rank and its device process, as pod/wire/ has them."""

from __future__ import annotations

import array
import enum
import socket
import struct
import threading
from collections.abc import Sequence
from typing import NamedTuple


class Kind(enum.IntEnum):
    """What is asked for, and what is said (pod/wire/kinds.def)."""

    START = 1
    SEGMENT = 2
    DROP_SEGMENT = 3
    PUT = 4
    GET = 5
    COPY = 6
    FREE = 7
    COMPILE = 8
    LOAD = 9
    SERIALIZE = 10
    COST_ANALYSIS = 11
    COMPILED_MEMORY = 12
    DEVICE_MEMORY = 13
    UNLOAD = 14
    EXECUTE = 15
    STOP = 16
    LIMIT = 17
    PROFILE = 18
    ANSWER = 64
    RELEASED = 65
    LOST = 66
    PART = 67
    WANTED = 68


_HEAD = struct.Struct("<QIIQ")  # bytes that follow, kind, nothing, request
_INT = struct.Struct("<q")


class Message(NamedTuple):
    """What was received."""

    kind: int
    request: int  # to be answered, or 0
    body: Reader
    descriptors: list[int]


class Reader:
    """Fields of a message, in their order."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def number(self) -> int:
        """A number."""
        (value,) = _INT.unpack_from(self._body, self._at)
        self._at += _INT.size
        return int(value)

    def numbers(self) -> tuple[int, ...]:
        """A list of numbers."""
        size = self.number()
        values = struct.unpack_from(f"<{size}q", self._body, self._at)
        self._at += size * _INT.size
        return values

    def content(self) -> memoryview:
        """A text, as it lies in the message."""
        size = self.number()
        self._at += size
        return self._body[self._at - size : self._at]

    def text(self) -> str:
        """A text of characters."""
        return str(self.content(), "utf-8")


class Writer:
    """The same, to be sent."""

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []

    def number(self, value: int) -> Writer:
        """A number."""
        self.parts.append(_INT.pack(value))
        return self

    def numbers(self, values: Sequence[int]) -> Writer:
        """A list of numbers."""
        self.parts.append(struct.pack(f"<{len(values) + 1}q", len(values), *values))
        return self

    def raw(self, value: bytes | memoryview) -> Writer:
        """Bytes without their number: the last field."""
        self.parts.append(value)
        return self

    def content(self, value: bytes | memoryview) -> Writer:
        """A text."""
        self.parts += [_INT.pack(len(value)), value]
        return self

    def text(self, value: str) -> Writer:
        """A text of characters."""
        return self.content(value.encode())


class Line:
    """The device process's end of the socket pair."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._sending = threading.Lock()

    def receive(self) -> Message | None:
        """The next message; None when the rank has gone. From one thread."""
        head, descriptors = self._receive_head()
        if head is None:
            return None
        size, kind, _, request = _HEAD.unpack(head)
        body = memoryview(bytearray(size))
        if not self._fill(body):
            return None
        return Message(kind, request, Reader(body), descriptors)

    def _receive_head(self) -> tuple[bytearray | None, list[int]]:
        """A head, and descriptors, which come with its first byte."""
        first, ancillary, _, _ = self._end.recvmsg(_HEAD.size, socket.CMSG_SPACE(4))
        descriptors = array.array("i")
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(data[: len(data) // 4 * 4])
        head = bytearray(_HEAD.size)
        head[: len(first)] = first
        if not first or not self._fill(memoryview(head)[len(first) :]):
            return None, []
        return head, descriptors.tolist()

    def _fill(self, room: memoryview) -> bool:
        while room:
            got = self._end.recv_into(room)
            if not got:
                return False
            room = room[got:]
        return True

    def answer(self, request: int, body: Writer | None = None) -> None:
        """All went well, and this is what was asked for. From any thread."""
        content = b"".join(body.parts) if body else b""
        self._send(Kind.ANSWER, request, Writer().number(0).text("").content(content))

    def refuse(self, request: int, code: int, message: str) -> None:
        """It did not go well."""
        self._send(Kind.ANSWER, request, Writer().number(code).text(message).content(b""))

    def released(self, segment: int) -> None:
        """Nothing here uses the segment any more."""
        self._send(Kind.RELEASED, 0, Writer().number(segment))

    def part(self, request: int, so_far: int) -> None:
        """So many bytes of what was asked for are in the segment; the answer follows."""
        self._send(Kind.PART, request, Writer().number(so_far))

    def lost(self, what: str) -> None:
        """Another rank has gone."""
        self._send(Kind.LOST, 0, Writer().text(what))

    def wanted(self) -> None:
        """Others wait for what the rank has not run."""
        self._send(Kind.WANTED, 0, Writer())

    def _send(self, kind: Kind, request: int, body: Writer) -> None:
        content = b"".join(body.parts)
        head = _HEAD.pack(len(content), kind, 0, request)
        with self._sending:
            self._end.sendall(head + content)
