"""Ranks of one machine meet in memory that they share (pod/memory), and not by gloo.

Rank 0 makes a file without a name, and says where in its /proc it is. All say whether they have it,
and rank 0 says what is done: so all do the same.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import INVALID_ARGUMENT, Refused
from .mpi_library import CHOICE, OF_MEMORY
from .mpi_names import Names

_SPMD = "XLA_USE_SPMD"  # torch_xla's
_NAME = "torch_xla_cc pod "  # of the file, which a secret follows
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_KEY = "torch_xla_cc/memory/"
_Said = dict[str, Any]


class Memory(Names):
    """The memory that they share."""

    def __init__(self, descriptor: int, rank: int, size: int) -> None:
        super().__init__(OF_MEMORY)
        begun = self.library.pod_memory_begin(descriptor, rank, size)
        self.check("to share memory", begun)
        self.collectives.Init()

    def lost(self, what: str) -> None:
        """What waits fails."""
        self.library.pod_memory_end(what.encode())


def joined(peers: Any, rank: int, size: int, timeout_s: float) -> tuple[Memory | None, str]:
    """That of all ranks; None if they are to meet by gloo, and why. Raises if they do not agree."""

    def get(key: str) -> _Said:
        said: _Said = json.loads(peers.blocking_key_value_get(_KEY + key, int(timeout_s * 1000)))
        return said

    def put(key: str, said: _Said) -> None:
        peers.key_value_set(_KEY + key, json.dumps(said))

    own, descriptor = _own(rank, size, get)
    put(str(rank), own)
    try:
        if rank == 0:
            put("all", _agreed([own, *(get(str(other)) for other in range(1, size))]))
        agreed = get("all")
        if "error" in agreed:
            raise Refused(INVALID_ARGUMENT, agreed["error"])
        return Memory(descriptor, rank, size) if agreed["memory"] else None, agreed["why"]
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _own(rank: int, size: int, get: Callable[[str], _Said]) -> tuple[_Said, int]:
    """What a rank says, and the file if it has it."""
    own: _Said = {"choice": os.environ.get(CHOICE, ""), "why": "", "machine": _machine()}
    try:
        if own["choice"] == "gloo":
            raise _Cannot(f"{CHOICE} says so")
        if not own["choice"] and os.environ.get(_SPMD, "0").lower() not in ("", "0", "false"):
            raise _Cannot("it uses torch_xla's SPMD mode")
        if rank:
            return own, _opened(get("0"), own, size)
        made = _made(size)
        name = os.readlink(f"/proc/self/fd/{made}")
        return {**own, "pid": os.getpid(), "descriptor": made, "name": name, "is": _version()}, made
    except (_Cannot, OSError) as error:
        own["why"] = f"rank {rank}: {error}"
        return own, -1


class _Cannot(Exception):
    """Why a rank does not share memory."""


def _made(size: int) -> int:
    """The file, all zeros."""
    library = ctypes.CDLL(str(OF_MEMORY))
    if size > (most := library.pod_memory_most_ranks()):
        raise _Cannot(f"there are {size} ranks, and at most {most} share memory")
    library.pod_memory_bytes.restype = ctypes.c_uint64
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    made = os.memfd_create(_NAME + secrets.token_hex(16), flags)
    os.ftruncate(made, library.pod_memory_bytes(size))
    fcntl.fcntl(made, fcntl.F_ADD_SEALS, _SEALS)  # or who maps it might find less than there was
    return made


def _opened(first: _Said, own: _Said, size: int) -> int:
    """The file that rank 0 has made."""
    if first["why"]:
        raise _Cannot("rank 0 shares none")
    if first["machine"] != own["machine"]:
        raise _Cannot("it is on another machine than rank 0, or in another container")
    if first["is"] != _version():
        raise _Cannot(f"its {OF_MEMORY} is another than that of rank 0")
    path = f"/proc/{first['pid']}/fd/{first['descriptor']}"
    if os.readlink(path) != first["name"]:  # before it is opened, which may have effects
        raise _Cannot(f"{path} is not what rank 0 has made")
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(file).st_mode) or fcntl.fcntl(file, fcntl.F_GET_SEALS) != _SEALS:
        os.close(file)
        raise _Cannot(f"{path} is not what rank 0 has made")
    return file


def _machine() -> list[str]:
    """The same in processes that see the same processes and the same network."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return [boot, *(os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "net"))]


def _version() -> str:
    """Of the library, which says what is where in the memory."""
    return hashlib.sha256(OF_MEMORY.read_bytes()).hexdigest()


def _agreed(said: list[_Said]) -> _Said:
    """What all do, or why they cannot."""
    for rank, one in enumerate(said):
        if one["choice"] != said[0]["choice"]:
            return {
                "error": f"{CHOICE} is {one['choice']!r} on rank {rank} and "
                f"{said[0]['choice']!r} on rank 0. Set the same on all ranks"
            }
    why = next((one["why"] for one in said if one["why"]), "")
    if why and said[0]["choice"] == "memory":
        return {"error": f"{CHOICE}=memory: the ranks cannot share memory: {why}. Use gloo"}
    return {"memory": not why, "why": why}
