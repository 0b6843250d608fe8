"""The world of a device process: jaxlib's client, and how it finds the others."""

from __future__ import annotations

import math
import queue
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from . import attendance, buffers, first, lines, meetings, memory, mpi, mpi_library, mpi_names
from .asks import Lost
from .errors import DEADLINE_EXCEEDED, UNAVAILABLE, Refused
from .jaxlib_xla import xla

_TIMEOUT_S = 600.0  # as torch_xla_cc.launch waits, if nothing is said
_LONGEST_S = 86400
# jaxlib ends all processes when it misses the heartbeat of one, also of one that has ended well. Of
# deaths and of networks that drop attendance.py tells, so this is: never.
_HEARTBEAT_S = 10**8
_ROOM = 64 << 20  # bytes that may wait to be sent when a program begins
_FOR_ROOM_S = 2.0
_LOOK_S = 1.0


class World:
    """Holds what the client needs to live."""

    def __init__(
        self,
        options: Mapping[str, str],
        lost: Lost,
        where: attendance.Where,
        wanted: attendance.Wanted = lambda: None,
    ) -> None:
        self.rank = int(options.get("rank", "0"))
        self.size = int(options.get("world", "1"))
        self.timeout_s = min(float(options.get("timeout_s", _TIMEOUT_S)), _LONGEST_S)
        self._where, self._wanted = where, wanted
        self._held: list[Any] = []
        self._said = meetings.Recent(meetings.PROGRAMS)
        self._met: set[meetings.Group] = set()
        self._shrinks = False  # the program that ran last: the buffers of connections
        self._complete = False
        self._attendance: attendance.Host | attendance.Guest | None = None
        self._names: mpi_names.Names | None = None  # None: gloo
        self.collectives = ""  # how they go, in words; of one rank there are none
        if self.size == 1:
            self.client = xla.get_tfrt_cpu_client(asynchronous=False, num_devices=1)
        else:
            self.client = self._started(options, lost)
        self._complete = True

    def leave(self) -> None:
        """An orderly end: rank 0 waits for the others."""
        if self._attendance is not None and self._complete:
            self._attendance.leaves()
            if self._names is not None:
                while not self._names.wait_for_room(0, _LOOK_S):
                    self._attendance.stalled()  # whoever is to take it hears of it
            self._attendance.leave()
            if self._names is not None:
                self._names.end()
            self._attendance.end()

    @property
    def by_names(self) -> bool:
        """Whether XLA calls MPI's names, and not gloo."""
        return self._names is not None

    def meets(
        self,
        calls: meetings.Calls,
        key: str,
        cliques: Sequence[meetings.Group],
        *,
        impatient: bool = False,
    ) -> None:
        """A program with collectives is about to run: compare these with what others run.

        The first time before it does; else as it does. `impatient`: gloo gives up in it on a rank
        that comes 30 s late, and nothing makes all meet before. `cliques`: what is to be connected
        where it is not gloo that does it.
        """
        if self._names is not None:
            if calls.links:  # not for longer: what this program receives may be waited for
                self._names.wait_for_room(_ROOM, _FOR_ROOM_S)
            self._names.expect(cliques)
        if self._attendance is None or not (calls.groups or calls.links):
            return
        # Of a new group gloo connects the ranks, and waits 30 s for each. Where a program has
        # several groups, others may not come before the first has met, or before they have got
        # what this one sends.
        first = calls.groups[0][0] if calls.groups else None
        gloo = self._names is None
        awaits = first not in self._met or (gloo and impatient and len(calls.groups) == 1)
        awaits = awaits and first is not None and not calls.has_messages()
        if self._shrinks:
            buffers.widen()
        known, _ = self._said.use(key)
        self._shrinks = gloo and not known and calls.has("reduce-scatter")
        if first is not None:
            self._met.add(first)
        asks = "awaits" if awaits else "" if known else "asks"
        self._attendance.begin(key, None if known else calls, asks)

    def _gone(self, rank: int) -> None:
        """A rank receives nothing any more."""
        if self._names is not None:
            self._names.gone(rank)

    def fail(self, why: str) -> None:
        """Have all ranks hear that a program that they run as well has failed here."""
        if self._attendance is not None:
            self._attendance.fail(f"a program with collectives failed on rank {self.rank}: {why}")

    def stalled(self) -> None:
        """Have those that others wait for hear of it."""
        if self._shrinks:  # what waits may be what comes after, in the same program
            buffers.widen()
        if self._attendance is not None:
            self._attendance.stalled()

    def late(self, waited_s: float, limit_s: float) -> None:
        """Have all ranks hear that this one has waited too long in a program."""
        if self._attendance is not None:
            self._attendance.late(
                f"rank {self.rank} waited {waited_s:.0f} s in a program with collectives, and "
                f"{_whose(limit_s, self.timeout_s)}"
            )

    def _started(self, options: Mapping[str, str], lost: Lost) -> Any:
        """The client. It is made on a thread of its own, because jaxlib and gloo do not hear of a
        rank that goes meanwhile."""
        outcomes: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def hear(what: str) -> None:
            outcomes.put(Refused(UNAVAILABLE, what))
            lost(what)

        def start() -> None:
            try:
                outcomes.put(self._joined(options, hear))
            except Exception as error:
                outcomes.put(error)

        threading.Thread(target=start, daemon=True).start()
        try:
            outcome = outcomes.get(timeout=3 * self.timeout_s)  # the first wait says more
        except queue.Empty:
            outcome = Refused(
                DEADLINE_EXCEEDED,
                f"the pod has not started within {3 * self.timeout_s:g} s"
                f"{': not all ranks have begun MPI' if mpi_library.wanted() else ''}",
            )
        if isinstance(outcome, memory.Disagreed):
            outcome.wait()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _joined(self, options: Mapping[str, str], lost: Lost) -> Any:
        client = self._connected(options, lost)
        program = first.compiled(client, self.size)
        # All are to come within gloo's 30 s.
        every = tuple(range(self.size))
        begins = meetings.one(every, "the start")
        self.meets(begins, begins.key(), [every])
        first.run(client, program)
        return client

    def _connected(self, options: Mapping[str, str], lost: Lost) -> Any:
        address, token = self._address(options)
        host, port = _split(address)
        timeout_s = self.timeout_s
        own = _own_address(host, port)

        def heard(what: str) -> None:
            lost(what)
            if self._names is not None:
                self._names.lost(what)

        if self.rank == 0:
            # On this machine alone, if all ranks are.
            listens = host if host in lines.LOCALHOSTS else ""
            attends = attendance.Host(
                (listens, port),
                self.size,
                token,
                heard,
                self._where,
                self._wanted,
                self._gone,
            )
            self._attendance = attends
            loopback = lines.is_loopback(own)  # as a machine's name stands for in its own files
            service = attends.meet(
                lambda reached: lines.joined((loopback and reached) or own, _free_port()), timeout_s
            )
            own, _ = _split(service)
            listens = service if host in lines.LOCALHOSTS else f"[::]:{_split(service)[1]}"
            self._held.append(
                xla.get_distributed_runtime_service(
                    listens, self.size, heartbeat_timeout=_HEARTBEAT_S
                )
            )
        else:
            joins = attendance.Guest(
                (host, port),
                self.rank,
                self.size,
                token,
                timeout_s,
                heard,
                self._where,
                self._wanted,
                self._gone,
            )
            self._attendance = joins
            service = joins.meet(timeout_s)
        peers = xla.get_distributed_runtime_client(
            service,
            self.rank,
            init_timeout=math.ceil(min(timeout_s, _LONGEST_S)),
            heartbeat_timeout=_HEARTBEAT_S,
            shutdown_on_destruction=False,
        )
        peers.connect()
        if self._names is None:
            self._names, why = memory.joined(peers, self.rank, self.size, timeout_s)
            self.collectives = "memory" if self._names else f"gloo: {why}"
        if self._names is None:
            collectives = xla.make_gloo_tcp_collectives(distributed_client=peers, hostname=own)
        else:
            collectives = self._names.collectives
        self._held += [peers, collectives]
        client = xla.get_tfrt_cpu_client(
            asynchronous=False,
            distributed_client=peers,
            node_id=self.rank,
            num_nodes=self.size,
            collectives=collectives,
            num_devices=1,
        )
        if self._names is not None:
            self._names.devices = {device.process_index: device.id for device in client.devices()}
        return client

    def _address(self, options: Mapping[str, str]) -> tuple[str, str]:
        """Where they meet, and the token. By MPI rank 0 says both."""
        if not mpi_library.wanted():
            return options["coordinator"], options.get("token", "")
        self._names = by_mpi = mpi.Mpi(self.rank, self.size)
        self.collectives = "MPI"

        def chosen() -> str:
            return f"{lines.joined(options['master'], _free_port())} {secrets.token_hex(16)}"

        address, token = by_mpi.said_by_first(chosen, self.rank).split()
        return address, token


def _whose(limit_s: float, timeout_s: float) -> str:
    """Which limit it is."""
    if limit_s < timeout_s:
        return f"the time limit of a group in it is {limit_s:g} s"
    return f"TORCH_XLA_CC_TIMEOUT_S is {timeout_s:g}"


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _free_port() -> int:
    with socket.create_server(("", 0)) as free:
        return int(free.getsockname()[1])


def _own_address(coordinator: str, port: int) -> str:
    """The address of this machine that the machine of the coordinator sees."""
    family, kind, proto, _, to = socket.getaddrinfo(coordinator, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, proto) as probe:
        probe.connect(to)  # sends nothing
        return str(probe.getsockname()[0])
