"""Random programs on worlds that are made and ended, in which at most one rank differs.

Right values or the documented error on every rank, in time; the process lives, and the next world
works.

What a program is: world_programs.py. A program that fails is printed, and runs again by

    PYTHONPATH=python:tests/harness python tests/distributed/test_random_worlds.py WHERE WORLD SEED

where WHERE is `threads` or `processes`; `launches` for those of world_launches.py, `killed` for
processes of which one is killed. With a fourth argument N a program of the first two is made as
small as it can be and still fail once in N runs (world_shrink.py).
"""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import effort
import pods
import processes
import pytest
import world_launches
import world_oracle
import world_programs
import world_runner
import world_shrink
import worlds
from world_programs import STAYING, Program

# How many programs for each number of ranks.
THREADS = {2: 40, 3: 60, 4: 40}
PROCESSES = {2: 30, 3: 30}
ON_POD = {3: 12}
KILLED = {3: 2}
LAUNCHES = {2: 12, 4: 20}
BATCH = 40  # in one launch, or one request to processes
A_BATCH_S = 300.0
MOST_SLOW = 0.2  # programs that the machine was too slow for, of all


def _batches(count: int) -> list[range]:
    first = effort.SEED * 1_000_000
    end = first + count * effort.TIMES
    return [range(at, min(at + BATCH, end)) for at in range(first, end, BATCH)]


def _ran_last(text: str) -> int | None:
    """The seed of the program that ran when the ranks' processes were lost."""
    seeds = re.findall(r"^program (\d+)$", text, re.M)
    return int(seeds[-1]) if seeds else None


def run(ranks: Any, programs: Sequence[Program]) -> int:
    """Fails if something is wrong; how many programs were too slow to tell."""
    by_seed = {program.seed: world_programs.text(program) for program in programs}
    try:
        by_rank = ranks.run(world_runner.run, programs, uuid.uuid4().hex, timeout_s=A_BATCH_S)
    except Exception as error:
        seed = _ran_last(str(error))
        if seed is not None:
            error.add_note(by_seed[seed])
        raise
    wrong = [line for lines, _ in by_rank for line in lines]
    if wrong:
        program = by_seed[int(wrong[0].split()[1])]
        pytest.fail("\n".join([program, *dict.fromkeys(wrong)]), pytrace=False)
    return max(slow for _, slow in by_rank)


def run_seeds(ranks: Any, seeds: Iterable[int], world: int, where: str) -> int:
    return run(ranks, [world_programs.program(seed, world, where) for seed in seeds])


def _check_slow(slow: int, count: int) -> None:
    assert slow <= MOST_SLOW * count * effort.TIMES, f"{slow} programs were too slow to tell"


@pytest.mark.parametrize("world", THREADS)
def test_threads(world):
    with worlds.World(world) as ranks:
        slow = sum(run_seeds(ranks, seeds, world, "threads") for seeds in _batches(THREADS[world]))
    _check_slow(slow, THREADS[world])


@pytest.mark.parametrize("world", PROCESSES)
def test_processes(world):
    with processes.Processes(world) as ranks:
        slow = sum(
            run_seeds(ranks, seeds, world, "processes") for seeds in _batches(PROCESSES[world])
        )
    _check_slow(slow, PROCESSES[world])


@pytest.mark.parametrize("world", ON_POD)
def test_calls_that_stay_in_the_graph(world):
    pytest.importorskip("jaxlib", reason="the pod needs it")
    with pods.ranks(world) as ranks:
        slow = sum(run_seeds(ranks, seeds, world, STAYING) for seeds in _batches(ON_POD[world]))
    _check_slow(slow, ON_POD[world])


def run_killed(seed: int, world: int) -> None:
    """One rank of new processes is killed; the others end the program, and a new world."""
    program = world_programs.program(seed, world, "processes", True)
    outcomes = processes.Processes(world).of_survivors(
        world_runner.run, [program], uuid.uuid4().hex, timeout_s=A_BATCH_S
    )
    wrong = [line for outcome in outcomes if outcome for line in outcome[0]]
    dead = [rank for rank, outcome in enumerate(outcomes) if outcome is None]
    assert not wrong, "\n".join([world_programs.text(program), *wrong])
    assert dead == [program.fault.rank]


@pytest.mark.parametrize("world", KILLED)
def test_a_process_is_killed(world):
    for seeds in _batches(KILLED[world]):
        for seed in seeds:
            run_killed(seed, world)


def launch(ranks: worlds.World, seed: int, world: int) -> None:
    plan = world_launches.plan(seed, world)
    by_rank, error = None, None
    try:
        by_rank = ranks.run(
            world_launches.run_plan, seed, world, timeout_s=90, launch_timeout_s=plan.limit_s()
        )
    except (worlds.WorkerDied, worlds.WorkerHung) as lost:
        lost.add_note(str(plan))
        raise
    except Exception as raised:
        error = raised
    wrong = world_launches.check(plan, by_rank, error)
    assert not wrong, f"{plan}\n{wrong}"


@pytest.mark.parametrize("world", LAUNCHES)
def test_launches(world):
    with worlds.World(world) as ranks:
        for seeds in _batches(LAUNCHES[world]):
            for seed in seeds:
                launch(ranks, seed, world)


def test_the_programs_are_of_all_kinds():
    programs = [
        world_programs.program(seed, world, where)
        for where in ("threads", "processes")
        for world in (2, 3, 4)
        for seed in range(150)
    ]
    faults = Counter(program.fault.kind for program in programs)
    assert set(faults) == {*world_programs.FAULTS}
    assert max(faults.values()) < 0.6 * len(programs)
    events = [event for program in programs for event in program.events]
    ops = {call.op for event in events for call in event.calls}
    every = {*world_programs.COLLECTIVES, *world_programs.OBJECTS, *world_programs.MESSAGES}
    every |= {*world_programs.BARRIERS, *world_programs.FUNCTIONAL, world_programs.ANYONE}
    assert ops == every
    assert sum(event.lazy for event in events) > 100
    # Few of which nothing can be said after some event, and most of no more than a blink.
    assert sum(world_oracle.Play(program).unsure for program in programs) < 0.1 * len(programs)
    assert sum(bool(program.short) for program in programs) < 0.4 * len(programs)


def _fails(where: str, program: Program, times: int) -> bool:
    made: Any = processes.Processes if where == "processes" else worlds.World
    try:
        with made(program.world) as ranks:
            for _ in range(times):
                run(ranks, [program])
    except (Exception, pytest.fail.Exception):
        print(f"fails, with {len(program.events)} events", file=sys.stderr)
        return True
    return False


def test_programs_are_made_smaller():
    program = next(
        one
        for one in (world_programs.program(seed, 3, "threads") for seed in range(1000))
        if one.fault.kind == "differ" and len(one.events) > 6 and len(one.groups) > 2
    )

    def fails(one: Program) -> bool:
        return one.fault.kind == "differ" and any(event.reads for event in one.events)

    program = dataclasses.replace(
        program, events=(dataclasses.replace(program.events[0], reads=(1,)), *program.events[1:])
    )
    least = world_shrink.shrunk(program, fails)
    assert fails(least)
    assert not any(fails(one) for one in world_shrink.smaller(least) if world_oracle.made(one))
    assert len(least.events) <= 2


def _again() -> None:
    where, world, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if len(sys.argv) > 4:
        program = world_programs.program(seed, world, where)
        fails = functools.partial(_fails, where, times=int(sys.argv[4]))
        print(world_programs.text(world_shrink.shrunk(program, fails)))
        return
    if where == "killed":
        run_killed(seed, world)
        return
    made: Any = processes.Processes if where == "processes" else worlds.World
    with made(world) as ranks:
        if where == "launches":
            launch(ranks, seed, world)
        else:
            print(world_programs.text(world_programs.program(seed, world, where)))
            run_seeds(ranks, [seed], world, where)


if __name__ == "__main__":
    _again()
