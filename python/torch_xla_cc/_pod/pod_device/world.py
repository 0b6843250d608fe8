"""The world of a device process: jaxlib's client, and how it finds the others."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from . import attendance
from .jaxlib_xla import xla

_SECONDS_TO_MEET = 300
# jaxlib ends this process when it misses a heartbeat. Of deaths attendance.py tells, so this is for
# networks that drop, and for processes that are stopped.
_HEARTBEAT_S = 600


class World:
    """Holds what the client needs to live."""

    def __init__(self, options: Mapping[str, str], lost: attendance.Lost) -> None:
        self.rank = int(options.get("rank", "0"))
        self.size = int(options.get("world", "1"))
        self._held: list[Any] = []
        self._complete = False
        self._attendance: attendance.Host | attendance.Guest | None = None
        if self.size == 1:
            self.client = xla.get_tfrt_cpu_client(asynchronous=True, num_devices=1)
        else:
            self.client = self._joined(options["coordinator"], lost)
        self._complete = True

    def leave(self) -> None:
        """An orderly end: rank 0 waits for the others."""
        if self._attendance is not None and self._complete:
            self._attendance.leave()

    def fail(self, why: str) -> None:
        """Have all ranks hear that a program that they run as well has failed here."""
        if self._attendance is not None:
            self._attendance.fail(f"a program with collectives failed on rank {self.rank}: {why}")

    def _joined(self, address: str, lost: attendance.Lost) -> Any:
        if self.rank == 0:
            self._held.append(
                xla.get_distributed_runtime_service(
                    _to_listen_on(address), self.size, heartbeat_timeout=_HEARTBEAT_S
                )
            )
        peers = xla.get_distributed_runtime_client(
            address,
            self.rank,
            init_timeout=_SECONDS_TO_MEET,
            heartbeat_timeout=_HEARTBEAT_S,
            shutdown_on_destruction=False,
        )
        peers.connect()
        own = _own_address(address)
        self._attendance = (
            attendance.Host(peers, own, self.size, lost)
            if self.rank == 0
            else attendance.Guest(peers, self.rank, lost)
        )
        gloo = xla.make_gloo_tcp_collectives(distributed_client=peers, hostname=own)
        self._held += [peers, gloo]
        return xla.get_tfrt_cpu_client(
            asynchronous=True,
            distributed_client=peers,
            node_id=self.rank,
            num_nodes=self.size,
            collectives=gloo,
            num_devices=1,
        )


def _to_listen_on(address: str) -> str:
    """On this machine alone, if all ranks are."""
    host, _, port = address.rpartition(":")
    return address if host == "127.0.0.1" else f"[::]:{port}"


def _own_address(coordinator: str) -> str:
    """The address of this machine that the machine of the coordinator sees."""
    host, _, port = coordinator.rpartition(":")
    family, kind, proto, _, to = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_DGRAM)[
        0
    ]
    with socket.socket(family, kind, proto) as probe:
        probe.connect(to)  # sends nothing
        return str(probe.getsockname()[0])
