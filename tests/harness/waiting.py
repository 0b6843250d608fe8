"""How long a worker may take, and what is said of one that takes longer, or dies."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import time
from multiprocessing.connection import Connection
from typing import IO, Any

_OF_THREADS = 3_000  # characters
_OF_OUTPUT = 6_000
_OF_CRASH = 200_000
# What PyTorch writes of the thread that has crashed, among all others.
_CRASHED = re.compile(r"Thread \d+: \n(?: ?frame.*\n)*?.*fatalSignalHandler\(.*\n(?:.+\n)*")


class Patience:
    """So many seconds, of all waits together.

    Of a second in which the machine stood still, or the worker got no turn, one is counted.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = self._left = seconds

    def answers(self, pipe: Connection) -> bool:
        """Whether something can be read before they are over."""
        while not pipe.poll(min(1.0, max(0.01, self._left))):
            self._left -= 1.0
            if self._left <= 0:
                return False
        return True


def tell() -> None:
    """Have this process write where its threads are when it crashes, or on SIGUSR1."""
    from torch._C import _set_print_stack_traces_on_fatal_signal as frames_of_cpp

    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    frames_of_cpp(True)


def where(process: Any, log: IO[Any]) -> str:
    """Where the threads of a worker are, which it writes when asked, and what it has used."""
    start = os.fstat(log.fileno()).st_size
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGUSR1)
    time.sleep(0.5)
    threads = _read(log, start, os.fstat(log.fileno()).st_size)[:_OF_THREADS]
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    return f"it has used {_cpu_s(process.pid):.1f} s of CPUs; load {load}; its threads:\n{threads}"


def output(log: IO[Any], start: int = 0) -> str:
    """The end of what was written since `start`, and the thread of C++ that has crashed."""
    # Not by seek and read: the worker shares the file's position.
    end = os.fstat(log.fileno()).st_size
    crashed = _CRASHED.findall(_read(log, max(start, end - _OF_CRASH), end))
    return "\n".join([_read(log, max(start, end - _OF_OUTPUT), end), *crashed])


def _read(log: IO[Any], start: int, end: int) -> str:
    return os.pread(log.fileno(), end - start, start).decode(errors="replace")


def _cpu_s(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
