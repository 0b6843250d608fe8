"""Runs programs of world_programs.py on ranks, and says what each may not have got.

    run(rank, programs, name)  # on every rank: what is wrong, in words

Each program has a world of its own, and begins with an all_reduce in it: what the one before has
left behind shows there. `name` is of this run alone.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

import torch
import torch.distributed as dist
import torch_xla
import world_calls
import world_oracle
import world_programs
from world_oracle import Expected
from world_programs import KILLS, LONG_S, OBJECTS, SHORT_S, Action, Program

from torch_xla_cc import RanksDisagree
from torch_xla_cc.distributed import in_graph

_GIVEN_UP_S = 30.0
_HEARD_S = 20.0  # of a process of this machine that was killed


class OwnError(Exception):
    """What a rank raises itself."""


class Side:
    """How ranks tell each other how far they are, beside all that is tested: on threads."""

    _barriers: ClassVar[dict[int, threading.Barrier]] = {}
    _lock = threading.Lock()
    _noted: ClassVar[set[str]] = set()

    def __init__(self, world: int) -> None:
        with self._lock:
            self.barrier = self._barriers.setdefault(world, threading.Barrier(world))

    def meet(self, name: str) -> None:
        self.barrier.wait(120)

    def note(self, name: str) -> None:
        self._noted.add(name)

    def noted(self, name: str) -> bool:
        return name in self._noted

    def store(self, name: str) -> Any:
        return None


class SideOfProcesses(Side):
    """On processes: by the store that torchrun serves."""

    def __init__(self, world: int) -> None:
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self.world = world
        self._store = dist.TCPStore(host, port, is_master=False)
        self._begun = f"side/{time.time():.0f}"

    def meet(self, name: str) -> None:
        if self._store.add(f"side/{name}", 1) == self.world:
            self._store.set(f"side/{name}/all", "")
        self._store.wait([f"side/{name}/all"], timedelta(seconds=120))

    def note(self, name: str) -> None:
        self._store.set(f"side/{name}", "")

    def noted(self, name: str) -> bool:
        return bool(self._store.check([f"side/{name}"]))

    def store(self, name: str) -> Any:
        return dist.PrefixStore(f"world/{name}", self._store)


class _Run:
    """One program on one rank."""

    def __init__(self, rank: int, program: Program, side: Side, name: str) -> None:
        self.rank, self.program, self.side, self.name = rank, program, side, name
        self.threads = program.where == "threads"
        self.groups: list[world_calls.Member | None] = []
        self.wrong: list[str] = []
        self.slow = False

    def run(self) -> list[str]:
        """What is wrong."""
        try:
            self._begin()
            self._check_world()
            self._play()
        except OwnError:
            pass
        except Exception as error:
            kind = type(error).__name__
            if self.program.short and kind == world_oracle.TIMEOUT:
                self.slow = True  # before its first event, or in the graph
            else:
                self._complain(f"{kind}: {error}")
        finally:
            self._end()
        return self.wrong

    def _complain(self, what: str) -> None:
        self.wrong.append(f"rank {self.rank}: {what[:1500]}")

    def _begin(self) -> None:
        # With a backend for the CPU, objects travel by that.
        calls = {call.op for event in self.program.events for call in event.calls}
        own = self.program.seed % 4 or calls & {*OBJECTS, "barrier", "objects sent"}
        backend = "xla_cc" if own else "cpu:gloo,xla:xla_cc"
        options: dict[str, Any] = {"timeout": timedelta(seconds=self._limit(0))}
        if not self.threads:
            options |= {
                "store": self.side.store(self.name),
                "rank": self.rank,
                "world_size": self.program.world,
            }
        dist.init_process_group(backend, **options)
        world = dist.group.WORLD
        plain = self.program.plain
        self.groups = [world_calls.Member(world, [*range(self.program.world)], self.rank, plain)]
        for number, members in enumerate(self.program.groups[1:], 1):
            limit = timedelta(seconds=self._limit(number))
            group = dist.new_group(list(members), timeout=limit)
            ours = self.rank in members
            self.groups.append(
                world_calls.Member(group, sorted(members), self.rank, plain) if ours else None
            )

    def _limit(self, group: int) -> float:
        return SHORT_S if group in self.program.short else LONG_S

    def _check_world(self) -> None:
        x = torch.full((3,), float(self.rank + 1)).to(torch_xla.device())
        dist.all_reduce(x)
        size = self.program.world
        found = x.tolist()
        if found != [size * (size + 1) / 2] * 3:
            self._complain(f"the first all_reduce gives {found}")

    def _play(self) -> None:
        expected = world_oracle.play(self.program).expected(self.rank)
        actions = world_programs.actions_of(self.program, self.rank)
        for at, action in enumerate(actions):
            if action.reads:
                float((torch.ones(2, device=torch_xla.device()) + at).sum())
            self._before(action)
            for i, (found, seconds) in enumerate(self._calls(action)):
                wanted = expected[at][i] if at < len(expected) else None
                self._check(action, i, found, seconds, wanted)
                self.side.note(f"{self.name}/{self.rank}/{action.event}") if self._is_waited_for(
                    action
                ) else None

    def _is_waited_for(self, action: Action) -> bool:
        fault = self.program.fault
        return fault.kind == "too late" and action.event == fault.event

    def _before(self, action: Action) -> None:
        if action.before == "late":
            time.sleep(0.03)
        elif action.before == "too late":
            end = time.monotonic() + _GIVEN_UP_S
            others = {*self.program.groups[action.groups[0]]} - {self.rank}
            names = [f"{self.name}/{other}/{action.event}" for other in others]
            while not all(self.side.noted(name) for name in names) and time.monotonic() < end:
                time.sleep(0.01)
        elif action.before == "end":
            member = self.groups[self.program.fault.detail]
            assert member is not None
            dist.destroy_process_group(member.group)
        elif action.before == "stop":
            raise OwnError
        elif action.before == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif action.before == "killed in it":
            soon = self.program.seed % 30 / 1000
            threading.Timer(soon, os.kill, (os.getpid(), signal.SIGKILL)).start()

    def _calls(self, action: Action) -> list[tuple[Any, float]]:
        """Results, or the exception, of each call, and how long it took."""
        if action.lazy:
            return self._lazy(action)
        began = time.monotonic()
        started: list[Any] = []
        for call, group in zip(action.calls, action.groups, strict=True):
            member = self.groups[group]
            assert member is not None
            try:
                if call.how == "refused":
                    world_calls.refused(member)
                started.append((*member.start(call, action.event), call, member))
            except Exception as error:
                started.append(error)
        done: list[Any] = list(started)
        for i in reversed(range(len(started))):
            if isinstance(started[i], Exception):
                continue
            works, found, call, member = started[i]
            try:
                world_calls.finish(works, call.how, not self.threads)
                done[i] = self._read(found, call, member)
            except Exception as error:
                done[i] = error
        seconds = time.monotonic() - began
        return [(one, seconds) for one in done]

    def _read(self, found: list[Any], call: Any, member: world_calls.Member) -> list[Any]:
        return [value for x in member.split(call, found) for value in world_calls.read(x)]

    def _lazy(self, action: Action) -> list[tuple[Any, float]]:
        began = time.monotonic()
        results: list[Any] = []
        with in_graph():
            for call, group in zip(action.calls, action.groups, strict=True):
                member = self.groups[group]
                assert member is not None
                works, found = member.start(call, action.event)
                if call.is_message():
                    world_calls.finish(works, call.how, False)
                results.append((found, call, member))
            way = (self.rank + action.event) % 3  # of this rank's own
            if way == 0:
                torch_xla.sync()
            elif way == 1:
                float(torch.ones(2, device=torch_xla.device()).sum())
            done = [self._read(*result) for result in results]
        return [(one, time.monotonic() - began) for one in done]

    def _check(
        self, action: Action, i: int, found: Any, seconds: float, wanted: Expected | None
    ) -> None:
        call, group = action.calls[i], action.groups[i]
        where = f"event {action.event}, group {group}, {call.op}"
        if seconds > (_HEARD_S if self.program.fault.kind in KILLS else LONG_S):
            self._complain(f"{where}: took {seconds:.1f} s")
        if wanted is None:
            wanted = Expected("anything", world_oracle.ANY)  # type: ignore[arg-type]
        if isinstance(found, Exception):
            self._check_error(where, group, found, wanted)
            return
        if wanted.met is None:
            self._complain(f"{where}: {found}, but it must raise {sorted(wanted.errors)}")
        elif wanted.met != "anything":
            member = self.groups[group]
            assert member is not None
            right = world_calls.expected(call, wanted.met, member.own)
            if world_calls.differs(found, right):
                self._complain(f"{where}: {found}, but it must be {right}")

    def _check_error(self, where: str, group: int, error: Exception, wanted: Expected) -> None:
        kind = type(error).__name__
        short = group in self.program.short
        if kind not in wanted.errors:
            if short and kind == world_oracle.TIMEOUT and wanted.met is not None:
                self.slow = True  # of a machine that has other work
                return
            may = sorted(wanted.errors) or "nothing"
            self._complain(f"{where}: {kind}, but it may raise {may}: {error}")
        elif not isinstance(error, RanksDisagree):
            self._complain(f"{where}: {kind} is not RanksDisagree: {error}")
        for rank in wanted.named:
            if f"rank {rank}" not in str(error):
                self._complain(f"{where}: {kind} does not name rank {rank}: {error}")

    def _end(self) -> None:
        self.groups = []
        try:
            if dist.is_initialized():
                dist.destroy_process_group()
        except Exception as error:
            self._complain(f"destroy_process_group: {type(error).__name__}: {error}")


def run(rank: int, programs: Sequence[Program], name: str) -> tuple[list[str], int]:
    """What is wrong in these programs, and how many were too slow to tell."""
    where, world = programs[0].where, programs[0].world
    side = Side(world) if where == "threads" else SideOfProcesses(world)
    wrong: list[str] = []
    slow = 0
    for number, program in enumerate(programs):
        if rank == 0:
            print(f"program {program.seed}", file=sys.stderr, flush=True)
        own = f"{name}/{number}"
        one = _Run(rank, program, side, own)
        found = one.run()
        slow += one.slow
        if found and not one.slow:
            wrong += [f"program {program.seed}", *found]
        if wrong:
            side.note(f"{own}/wrong")
        if program.fault.kind in KILLS:
            if program.fault.rank == rank:
                time.sleep(_GIVEN_UP_S)  # it will be killed
            break
        side.meet(f"{own}/end")
        if side.noted(f"{own}/wrong"):
            break  # what comes next would be blamed for it
    gc.collect()  # groups that are in errors, and so in circles, and have threads
    return wrong, slow
