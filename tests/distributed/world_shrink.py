"""A smaller program that fails as one does: `shrunk(program, fails)`.

Hypothesis shrinks what one process draws; these run on ranks that a failure may have ended, and
that fail now and then only. So `fails` runs a program as often as it takes to believe it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import world_oracle
from world_programs import Call, Event, Fault, Program


def _without(program: Program, number: int) -> Program | None:
    """The program without an event; if that has the fault, without the fault too."""
    events = program.events[:number] + program.events[number + 1 :]
    fault = program.fault
    if fault.kind == "none" or not events:
        return dataclasses.replace(program, events=events) if events else None
    if fault.event == number:
        fault = Fault()
    elif fault.event > number:
        fault = dataclasses.replace(fault, event=fault.event - 1)
    return dataclasses.replace(program, events=events, fault=fault)


def _used(program: Program) -> int:
    """How many of its groups, from the first, it needs."""
    used = {0, *(group for event in program.events for group in event.groups)}
    if program.fault.kind in ("end", "other group"):
        used.add(program.fault.detail)
    return max(used) + 1


def _simpler(event: Event) -> Iterator[Event]:
    if event.reads:
        yield dataclasses.replace(event, reads=())
    if event.lazy and len(event.calls) > 1:
        for i in range(len(event.calls)):
            calls = event.calls[:i] + event.calls[i + 1 :]
            yield dataclasses.replace(
                event, calls=calls, groups=event.groups[:i] + event.groups[i + 1 :]
            )
    plain = [dataclasses.replace(call, shape=(3,), dtype="float32") for call in event.calls]
    yield dataclasses.replace(event, calls=tuple(plain))
    if not event.lazy and len(event.calls) == 1:
        yield dataclasses.replace(event, calls=(dataclasses.replace(plain[0], how="at once"),))
        yield dataclasses.replace(event, calls=(Call("all_reduce"),))


def smaller(program: Program) -> Iterator[Program]:
    """Programs with a little less, the largest steps first."""
    for number in reversed(range(len(program.events))):
        found = _without(program, number)
        if found is not None:
            yield found
    if _used(program) < len(program.groups):
        groups = program.groups[: _used(program)]
        yield dataclasses.replace(program, groups=groups, short=frozenset())
    for number, event in enumerate(program.events):
        faulty = program.fault.kind != "none" and program.fault.event == number
        for one in () if faulty else _simpler(event):
            events = (*program.events[:number], one, *program.events[number + 1 :])
            yield dataclasses.replace(program, events=events)
    if not program.plain:
        yield dataclasses.replace(program, plain=True)


def shrunk(program: Program, fails: Callable[[Program], bool]) -> Program:
    """The least that still fails, going one step at a time."""
    tried: set[Program] = {program}
    while True:
        for candidate in smaller(program):
            made = world_oracle.made(candidate)
            if made is None or made in tried:
                continue
            tried.add(made)
            if fails(made):
                program = made
                break
        else:
            return program
