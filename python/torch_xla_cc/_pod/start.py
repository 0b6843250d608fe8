"""Starts the device process of a rank of the pod: it runs by its path, isolated.

Its descriptor 3 is its end of the socket pair.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
from pathlib import Path

_SOCKET = 3
_PR_SET_PDEATHSIG = 1


def main(path_of_jaxlib: str) -> None:
    """Serves until the rank has gone."""
    # The kernel ends this process with the thread that started it; if that has ended before this
    # line, the socket is closed. Ctrl-C is for the rank.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # jaxlib aborts when rank 0's process has gone
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each segment has a descriptor
    sys.path += [os.path.dirname(os.path.abspath(__file__)), path_of_jaxlib]
    # jaxlib asks jax for types that only jax uses, and goes without; importing it takes a second.
    sys.modules["jax"] = None  # type: ignore[assignment]

    from pod_device import mpi_library  # type: ignore[import-not-found]

    by_mpi = mpi_library.wanted()
    _close_others(int(os.environ.get("PMI_FD", _SOCKET)) if by_mpi else _SOCKET)  # MPICH's
    mpi_library.prepare(Path(path_of_jaxlib) / "jaxlib")

    from pod_device.server import Server  # type: ignore[import-not-found]
    from pod_device.wire import Line  # type: ignore[import-not-found]

    Server(Line(socket.socket(fileno=_SOCKET))).serve()


def _close_others(keep: int) -> None:
    """Files of the rank."""
    most = os.sysconf("SC_OPEN_MAX")
    os.closerange(_SOCKET + 1, max(_SOCKET + 1, min(keep, most)))
    os.closerange(max(_SOCKET, keep) + 1, most)


if __name__ == "__main__":
    main(sys.argv[1])
    sys.stdout.flush()
    os._exit(0)  # jaxlib's own end would wait for peers
