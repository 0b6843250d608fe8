"""The world of a device process: jaxlib's client, and how it finds the others."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from jaxlib import _jax as xla

_SECONDS_TO_MEET = 300
# A peer whose heart stops is not a reason to end here: the collectives that wait for it fail.
_HEARTBEAT_S = 100


class World:
    """Holds what the client needs to live."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.rank = int(options.get("rank", "0"))
        self.size = int(options.get("world", "1"))
        self._held: list[Any] = []
        if self.size == 1:
            self.client = xla.get_tfrt_cpu_client(asynchronous=True, num_devices=1)
        else:
            self.client = self._joined(options["coordinator"])

    def _joined(self, address: str) -> Any:
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
            missed_heartbeat_callback=_ignore,
            shutdown_on_destruction=False,
        )
        peers.connect()
        gloo = xla.make_gloo_tcp_collectives(
            distributed_client=peers, hostname=_own_address(address)
        )
        self._held += [peers, gloo]
        return xla.get_tfrt_cpu_client(
            asynchronous=True,
            distributed_client=peers,
            node_id=self.rank,
            num_nodes=self.size,
            collectives=gloo,
            num_devices=1,
        )


def _ignore(status: object) -> None:
    """Without a callback jaxlib ends the process."""


def _to_listen_on(address: str) -> str:
    """On this machine alone, if all ranks are."""
    host, _, port = address.rpartition(":")
    return address if host == "127.0.0.1" else f"[::]:{port}"


def _own_address(coordinator: str) -> str:
    """The address of this machine that the machine of the coordinator sees."""
    host, _, port = coordinator.rpartition(":")
    family, kind, proto, _, to = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, proto) as probe:
        probe.connect(to)  # sends nothing
        return str(probe.getsockname()[0])
