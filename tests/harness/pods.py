"""Runs functions on ranks of the pod: processes as torchrun starts them.

As processes.py does for CPU devices: `run(size, fn, *args)` returns the results by rank, or raises
the exception of a rank. The ranks are kept while their number is asked for.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import processes
import pytest
import waiting
import worlds

_ROOT = Path(__file__).parents[2]
_ENV = {"PJRT_DEVICE": "POD", "TF_CPP_MIN_LOG_LEVEL": "3"}
_MOST_KEPT = 1
_kept: dict[int, processes.Processes] = {}


def ranks(size: int, **env: str) -> processes.Processes:
    """Ranks of a test's own; what it is to run goes through `joined`."""
    return processes.Processes(size, {**_ENV, **env})


def run(size: int, fn: Callable[..., Any], *args: Any, timeout_s: float = 60.0) -> list[Any]:
    """`fn(rank, *args)` on every rank of those kept of that number."""
    kept = worlds.keep(_kept, size, _MOST_KEPT, functools.partial(ranks, size))
    return kept.run(joined, fn, *args, timeout_s=timeout_s)


def outcomes(ranks: processes.Processes, fn: Callable[..., Any], *args: Any) -> list[Any]:
    """By rank: what `fn` returns, or how the rank died in it."""
    results = []
    request = worlds._dumps((joined, (fn, *args)))
    for pipe in ranks._ranks:
        pipe.send_bytes(request)
    for rank in range(len(ranks._ranks)):
        try:
            error, result = ranks._answer(rank, waiting.Patience(30.0))
            assert error is None, error[1]
            results.append(result)
        except worlds.WorkerDied as death:
            results.append(str(death))
    return results


def installed(site: Path) -> dict[str, str]:
    """An environment in which the package is installed, as far as its entry points tell."""
    tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    info = site / "torch_xla_cc-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_xla_cc\nVersion: 0\n")
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(site), str(_ROOT / "python")]),
        "PJRT_DEVICE": "POD",
        "OMP_NUM_THREADS": "1",
    }


def close_all() -> None:
    """End all."""
    for kept in _kept.values():
        kept.close()
    _kept.clear()


def device_processes(pids: list[int]) -> dict[int, int]:
    """The device process of each process that has one."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue  # it has ended
        parent = int(stat.rpartition(")")[2].split()[1])
        if parent in pids and b"_pod/start.py" in command:
            found[parent] = int(pid)
    return found


def marked(mark: str) -> set[int]:
    """The processes that have MARK=mark in their environment."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if f"MARK={mark}".encode() in environment:
            found.add(int(pid))
    return found


def alive(pids: Iterable[int]) -> set[int]:
    """Those that still run."""
    found = set()
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        if stat.rpartition(")")[2].split()[0] != "Z":
            found.add(pid)
    return found


# Below: a rank.


def join() -> None:
    """Make this process a rank of the pod, as an init of torch.distributed does."""
    import torch_xla
    from torch_xla._internal import pjrt

    import txcc_pod

    if not torch_xla._XLAC._xla_runtime_is_initialized():
        txcc_pod.register()
        pjrt.initialize_multiprocess(int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"]))


def joined(rank: int, fn: Callable[..., Any], *args: Any) -> Any:
    """`fn` on this rank of the pod."""
    join()
    return fn(rank, *args)


_PIDFD_GETFD = 438  # of the kernel's calls, which Python does not have
_GONE = (errno.EBADF, errno.ENOENT)  # it has been closed meanwhile


def send_buffers(pid: int) -> list[int]:
    """Bytes that the TCP connections of a process may hold, as the kernel counts. Or an OSError."""
    found = []
    system = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                    continue
                number = system.syscall(_PIDFD_GETFD, process, int(name), 0)
                if number < 0:
                    raise OSError(ctypes.get_errno(), "pidfd_getfd")
            except OSError as error:
                if error.errno in _GONE:
                    continue
                raise
            with socket.socket(fileno=number) as connection, contextlib.suppress(OSError):
                connection.getpeername()  # else it listens
                if connection.family != socket.AF_UNIX:
                    found.append(connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
    finally:
        os.close(process)
    return found
