"""Ranks of one machine meet in memory that they share (pod/memory), and not by gloo.

Rank 0 makes a file without a name, and says where in its /proc it is. All say whether they have it,
and rank 0 says what is done: so all do the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import secrets
import sys
from pathlib import Path
from typing import Any

from .errors import DEADLINE_EXCEEDED, INVALID_ARGUMENT, Refused
from .mpi_library import CHOICE, OF_MEMORY
from .mpi_names import Names

_SPMD = "XLA_USE_SPMD"  # torch_xla's
_NAME = "torch_xla_cc pod "  # of the file, which a secret follows
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_OWN = "/proc/self/fd/{}"
_KEY = "torch_xla_cc/memory/"
_TO_HEAR_S = 10.0
_Said = dict[str, Any]


class Memory(Names):
    """The memory that they share."""

    def __init__(self, descriptor: int, rank: int, size: int) -> None:
        super().__init__(OF_MEMORY)
        begun = self.library.pod_memory_begin(descriptor, rank, size)
        self.check("to share memory", begun)

    def wait_for_room(self, size: int, limit_s: float) -> bool:
        """Until no more bytes than that wait in this process to be sent, or all is lost."""
        milliseconds = ctypes.c_uint64(int(limit_s * 1000))
        return bool(self.library.pod_memory_wait_for_room(ctypes.c_uint64(size), milliseconds))

    def gone(self, rank: int) -> None:
        """What waits to be sent to it goes."""
        self.library.pod_memory_gone(rank)

    def lost(self, what: str) -> None:
        """What waits fails."""
        self.library.pod_memory_end(what.encode())


class _Cannot(Exception):
    """Why a rank does not share memory; one of several things that are as they should be."""


class _Store:
    """jaxlib's, in which ranks say what they have."""

    def __init__(self, peers: Any, timeout_s: float) -> None:
        self._peers, self._timeout_s = peers, timeout_s

    def put(self, key: str, said: _Said) -> None:
        self._peers.key_value_set(_KEY + key, json.dumps(said))

    def get(self, key: str, timeout_s: float | None = None) -> _Said:
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            said: _Said = json.loads(
                self._peers.blocking_key_value_get(_KEY + key, int(limit_s * 1000))
            )
        except Exception as error:
            raise Refused(
                DEADLINE_EXCEEDED,
                f"what rank {key} says of the memory that ranks share has not come within "
                f"{limit_s:g} s: {error}. TORCH_XLA_CC_TIMEOUT_S is the limit",
            ) from error
        return said


class Disagreed(Refused):
    """Ranks that cannot do the same."""

    def __init__(self, message: str, store: _Store, to_hear: int) -> None:
        super().__init__(INVALID_ARGUMENT, message)
        self._store, self._to_hear = store, to_hear

    def wait(self) -> None:
        """Until all have heard it, or a while: rank 0's process, which is about to end, says it."""
        with contextlib.suppress(Refused):
            for other in range(1, self._to_hear):
                self._store.get(f"heard {other}", _TO_HEAR_S)


def joined(peers: Any, rank: int, size: int, timeout_s: float) -> tuple[Memory | None, str]:
    """That of all ranks; None if they are to meet by gloo, and why. Raises if they do not agree."""
    store = _Store(peers, timeout_s)
    descriptors: list[int] = []  # until all have opened them
    try:
        own, memory = _own(rank, size, store, descriptors)
        store.put(str(rank), own)
        if rank == 0:
            store.put("all", _agreed([own, *(store.get(str(r)) for r in range(1, size))]))
        agreed = store.get("all")
        store.put(f"heard {rank}", {})
        if "error" in agreed:
            raise Disagreed(agreed["error"], store, size if rank == 0 else 0)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    if not agreed["memory"] or memory is None:
        if rank == 0 and agreed["trouble"]:
            print(
                f"torch_xla_cc: the pod's ranks share no memory: {agreed['why']}", file=sys.stderr
            )
        return None, agreed["why"]
    memory.collectives.Init()
    return memory, ""


def _own(
    rank: int, size: int, store: _Store, descriptors: list[int]
) -> tuple[_Said, Memory | None]:
    """What a rank says, and the memory if it has it."""
    own: _Said = {"choice": os.environ.get(CHOICE, ""), "why": "", "trouble": False}
    try:
        if own["choice"] == "gloo":
            raise _Cannot(f"{CHOICE} says so")
        if not own["choice"] and os.environ.get(_SPMD, "0").lower() not in ("", "0", "false"):
            raise _Cannot("it uses torch_xla's SPMD mode")
        own["machine"] = _machine()
        if rank:
            descriptors.append(_opened(store.get("0"), own, size))
        else:
            descriptors.append(_made(size))
            own |= {"pid": os.getpid(), "descriptor": descriptors[0], "is": _version()}
            own["name"] = os.readlink(_OWN.format(descriptors[0]))
        return own, Memory(descriptors[0], rank, size)
    except _Cannot as error:
        own["why"] = f"rank {rank}: {error}"
    except (OSError, Refused) as error:
        own |= {"why": f"rank {rank}: {error}", "trouble": True}
    return own, None


def _made(size: int) -> int:
    """The file, all zeros."""
    if size > (most := _library().pod_memory_most_ranks()):
        raise _Cannot(f"there are {size} ranks, and at most {most} share memory")
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    made = os.memfd_create(_NAME + secrets.token_hex(16), flags)
    try:
        os.ftruncate(made, _bytes(size))
        fcntl.fcntl(made, fcntl.F_ADD_SEALS, _SEALS)  # or there might be less than is mapped
    except BaseException:
        os.close(made)
        raise
    return made


def _bytes(size: int) -> int:
    """Of the file."""
    return int(_library().pod_memory_bytes(size))


def _library() -> ctypes.CDLL:
    """That of the memory, before there is a `Memory`."""
    library = ctypes.CDLL(str(OF_MEMORY))
    library.pod_memory_bytes.restype = ctypes.c_uint64
    return library


def _opened(first: _Said, own: _Said, size: int) -> int:
    """The file that rank 0 has made."""
    if first["why"]:
        raise _Cannot("rank 0 shares none")
    if first["machine"] != own["machine"]:
        raise _Cannot("it is on another machine than rank 0, or in another container")
    path = f"/proc/{first['pid']}/fd/{first['descriptor']}"
    if first["is"] != _version():
        raise OSError(errno.EINVAL, "it is another libpod.so than that of rank 0", str(OF_MEMORY))
    if os.readlink(path) != first["name"]:  # before it is opened, which may have effects
        raise OSError(errno.ESTALE, "it is not what rank 0 has made", path)
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        found = os.fstat(file)
        sealed = fcntl.fcntl(file, fcntl.F_GET_SEALS) & _SEALS == _SEALS
        is_it = os.readlink(_OWN.format(file)) == first["name"] and found.st_uid == os.geteuid()
        if not (is_it and sealed and found.st_size == _bytes(size)):
            raise OSError(errno.ESTALE, "it is not what rank 0 has made", path)
    except BaseException:
        os.close(file)
        raise
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
    first = said[0]["choice"]
    for rank, one in enumerate(said):
        if one["choice"] != first:
            return {
                "error": f"{CHOICE} is {one['choice'] or 'not set'} on rank {rank} and "
                f"{first or 'not set'} on rank 0. Set the same on all ranks"
            }
    one = next((one for one in said if one["why"]), said[0])
    if one["why"] and first == "memory":
        return {"error": f"{CHOICE}=memory: the ranks cannot share memory: {one['why']}. Use gloo"}
    return {"memory": not one["why"], "why": one["why"], "trouble": one["trouble"]}
