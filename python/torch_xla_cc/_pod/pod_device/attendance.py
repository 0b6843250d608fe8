"""Who of the world is there: each device process is connected with that of rank 0 while it lives.

The kernel closes the connection of a process that dies, whatever of, so the others hear of it at
once; jaxlib's service would tell after its heartbeat's timeout. Rank 0's process stays until the
others have left: jaxlib ends a process whose coordination service has gone.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

_KEY = "torch_xla_cc/attendance"
_TIMEOUT_S = 300
_BYE = b"bye\n"
_TOKEN_BYTES = 16
_LONGEST = 4000  # bytes of a line

Lost = Callable[[str], None]


class Host:
    """Of rank 0: it hears of all, and tells all."""

    def __init__(self, store: Any, address: str, size: int, lost: Lost) -> None:
        self._lost = lost
        self._size = size
        self._token = secrets.token_hex(_TOKEN_BYTES).encode()
        self._changed = threading.Condition()
        self._there: dict[int, socket.socket] = {}
        self._left: set[int] = set()
        self._listener = socket.create_server((address, 0), backlog=size)
        port = self._listener.getsockname()[1]
        store.key_value_set(_KEY, f"{address} {port} {self._token.decode()}")
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._attend, args=(connection,), daemon=True).start()

    def _attend(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as said:
            token, _, number = _line(said).partition(b" ")
            if not secrets.compare_digest(token, self._token):
                return
            rank = int(number)
            with self._changed:
                self._there[rank] = connection
            bye = False
            while said_now := _line(said):
                bye = said_now == _BYE
                if not bye:
                    self._tell(said_now.decode().strip())
            with self._changed:
                self._there.pop(rank)
        if not bye:
            self._tell(f"the device process of rank {rank} has ended")
        with self._changed:
            self._left.add(rank)
            self._changed.notify_all()

    def _tell(self, what: str) -> None:
        with self._changed:
            others = list(self._there.values())
            gone = sorted(self._left)
        if gone:
            what = f"{what} (ranks that had ended before: {gone})"
        for other in others:
            with contextlib.suppress(OSError):  # it has gone as well
                other.sendall(what.encode() + b"\n")
        self._lost(what)

    def fail(self, what: str) -> None:
        """Something that ends all that they do together."""
        self._tell(_one_line(what))

    def leave(self) -> None:
        """Wait until all others have left."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._left) == self._size - 1)


def _one_line(what: str) -> str:
    return " ".join(what.split())[: _LONGEST // 2]


def _line(said: BinaryIO) -> bytes:
    """What the other end says; nothing if it has gone."""
    try:
        return said.readline(_LONGEST)
    except OSError:
        return b""


class Guest:
    """Of the other ranks."""

    def __init__(self, store: Any, rank: int, lost: Lost) -> None:
        self._lost = lost
        self._leaves = False
        said = store.blocking_key_value_get(_KEY, _TIMEOUT_S * 1000)
        host, port, token = said.split(" ")
        self._connection = socket.create_connection((host, int(port)), timeout=_TIMEOUT_S)
        self._connection.settimeout(None)
        self._connection.sendall(f"{token} {rank}\n".encode())
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            with self._connection.makefile("rb") as said:
                for line in said:
                    self._lost(line.decode().strip())
        except OSError:
            pass
        if not self._leaves:
            self._lost("the device process of rank 0 has ended")

    def fail(self, what: str) -> None:
        """Something that ends all that they do together: rank 0 tells it to all."""
        self._say(_one_line(what).encode() + b"\n")

    def leave(self) -> None:
        """Say that this is no accident."""
        self._leaves = True
        self._say(_BYE)
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _say(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # rank 0 has gone, of which _listen hears
            self._connection.sendall(line)
