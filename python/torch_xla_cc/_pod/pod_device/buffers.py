"""The send buffers of gloo's connections.

gloo's reduce_scatter sets them to the size of a message: after one of some KiB they hold 4,608
bytes, whatever is sent later. The kernel then sends one segment at a time, and the other end waits
40 ms before it acknowledges a single one; on loopback that makes 1.6 MB/s. gloo remembers the size,
so it sets them again for a larger message alone. The kernel chooses a size by itself, and better,
until a process sets one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat

_BYTES = 4 << 20  # or what net.core.wmem_max allows
_SO_BUF_LOCK, _SNDBUF_LOCK = 72, 1  # of <asm/socket.h>; before Linux 5.14 nothing is done


def widen() -> None:
    """Those that somebody has set, of the connections of this process; what fails is left."""
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            # It may be closed meanwhile, or be another connection, which is as good.
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    _of(int(name))


def _of(descriptor: int) -> None:
    connection = socket.socket(fileno=descriptor)
    try:
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            _widen(connection)
    finally:
        connection.detach()


def _widen(connection: socket.socket) -> None:
    lock = connection.getsockopt(socket.SOL_SOCKET, _SO_BUF_LOCK)
    if lock & _SNDBUF_LOCK:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BYTES)
        connection.setsockopt(socket.SOL_SOCKET, _SO_BUF_LOCK, lock & ~_SNDBUF_LOCK)
