"""What the parts of the attendance say to each other: lines over TCP."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from .errors import DEADLINE_EXCEEDED, Refused

LOCALHOSTS = ("127.0.0.1", "::1")
LONGEST = 65_536  # bytes of the first line, of whoever it is
_LONGEST = 64 << 20  # of others
SILENT_S = 45  # after which a machine that says nothing has gone
_PROBES = 6
_SHOWN = 2000  # bytes of a line for people
_AGAIN_S = 0.1
ENDED = "has ended"


class Speaker:
    """Says whole lines, from any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def say(self, line: str) -> None:
        """If the other end has gone, who listens to it hears of that."""
        with self._lock, contextlib.suppress(OSError):
            self._connection.sendall(f"{line}\n".encode())


def one_line(what: str) -> str:
    """It, for a line."""
    return " ".join(what.split())[:_SHOWN]


def how(error: OSError) -> str:
    """How it is that a connection is no more."""
    if error.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH):
        return f"cannot be reached any more ({error.strerror})"
    return ENDED


def probe(connection: socket.socket) -> None:
    """Have the kernel ask, when nothing is said, whether the other machine is there.

    And send each line at once.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    every = SILENT_S // (_PROBES + 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, every)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, every)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * SILENT_S)


def line(said: BinaryIO) -> bytes:
    """What the other end says; nothing if it has gone."""
    try:
        return said.readline(LONGEST)
    except TimeoutError:
        raise
    except OSError:
        return b""


def hear(said: BinaryIO, each: Callable[[str, str], None]) -> str:
    """Hand over each line, its first word and the rest, until no more comes; how that ended.

    That is nothing if the other end has said goodbye.
    """
    bye = False
    while True:
        try:
            line = said.readline(_LONGEST)
        except OSError as error:
            return "" if bye else how(error)
        if not line:
            return "" if bye else ENDED
        try:
            word, _, what = line.decode().strip().partition(" ")
            bye = bye or word == "bye"
            each(word, what)
        except Exception as error:
            return f"says {line[:_SHOWN]!r}, which cannot be understood ({error})"


def is_loopback(address: str) -> bool:
    """Whether it is this machine for each machine."""
    return ipaddress.ip_address(address).is_loopback


def joined(host: str, port: int | str) -> str:
    """Both in one text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listener(host: str, port: int, backlog: int) -> socket.socket:
    """Of rank 0; at all addresses of the machine, if the host is "".

    Who starts this process holds the port meanwhile.
    """
    both = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
    return socket.create_server(
        (host, port), family=family, backlog=backlog, reuse_port=True, dualstack_ipv6=both
    )


def connected(address: tuple[str, int], timeout_s: float) -> socket.socket:
    """A connection with rank 0, which may start later."""
    limit = time.monotonic() + timeout_s
    while True:
        try:
            return socket.create_connection(address, timeout=max(1.0, limit - time.monotonic()))
        except OSError as error:
            if time.monotonic() > limit:
                raise Refused(
                    DEADLINE_EXCEEDED,
                    f"rank 0 of the pod could not be reached at {joined(*address)} within "
                    f"{timeout_s:g} s: {error}. Check why it did not start, and whether a firewall "
                    "is between; TORCH_XLA_CC_TIMEOUT_S is how long to wait",
                ) from error
            time.sleep(_AGAIN_S)
