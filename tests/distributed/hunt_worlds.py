"""A long hunt of random worlds: lanes of processes that go on past what fails.

    PYTHONPATH=python:tests/harness python tests/distributed/hunt_worlds.py \
        [--seconds=S] [--count=N] [--first=SEED] [LANE...]

A lane is `threads-3`, `processes-2`, `launches-4`, `killed-3` or `pending-4`. Each ends after N
programs or S seconds; all run at once, each with seeds of its own. What fails is printed with its
program, and a line now and then, and at the end, says how many ran, failed, and were too slow to
tell.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import re
import subprocess
import sys
import time
from typing import Any

import pending_random
import processes
import pytest
import test_random_worlds
import worlds

LANES = ["threads-2", "threads-3", "threads-4", "processes-2", "processes-3", "pending-4"]
SEEDS_OF_A_LANE = 10_000_000
A_BATCH_S = 300.0
A_REPORT_S = 300.0


def _seed_of(failure: BaseException, seeds: range) -> int:
    """Of the program that failed: the last one begun if ranks are lost, else the first named."""
    text = "\n".join([str(failure), *getattr(failure, "__notes__", [])])
    named = [int(seed) for seed in re.findall(r"program (\d+)", text)]
    named = [seed for seed in named if seed in seeds] or [seeds[-1]]
    lost = isinstance(failure, (worlds.WorkerDied, worlds.WorkerHung))
    return named[-1] if lost else named[0]


class Lane:
    def __init__(self, name: str, first: int, count: int, seconds: float) -> None:
        self._where, world = name.split("-")
        self._world = int(world)
        self._next, self._first, self._end = first, first, first + count
        self._begun = time.monotonic()
        self._seconds = seconds
        self._slow = self._failed = 0
        self._reported = self._begun

    def _goes_on(self) -> bool:
        return self._next < self._end and time.monotonic() - self._begun < self._seconds

    def _run(self, ranks: Any, seeds: range) -> None:
        if self._where == "killed":
            test_random_worlds.run_killed(seeds[0], self._world)
        elif self._where == "launches":
            test_random_worlds.launch(ranks, seeds[0], self._world)
        elif self._where == "pending":
            by_rank = ranks.run(pending_random.at_random, seeds, self._world, timeout_s=A_BATCH_S)
            wrong = [line for lines in by_rank for line in lines]
            assert not wrong, "\n".join(wrong)
        else:
            self._slow += test_random_worlds.run_seeds(ranks, seeds, self._world, self._where)

    def _ranks(self) -> Any:
        if self._where == "killed":
            return contextlib.nullcontext()
        return (processes.Processes if self._where == "processes" else worlds.World)(self._world)

    def _until_one_fails(self) -> None:
        most = 1 if self._where in ("killed", "launches") else test_random_worlds.BATCH
        with self._ranks() as ranks:
            while self._goes_on():
                seeds = range(self._next, min(self._next + most, self._end))
                try:
                    self._run(ranks, seeds)
                except (Exception, pytest.fail.Exception) as failure:
                    self._failed += 1
                    notes = "\n".join(getattr(failure, "__notes__", []))
                    kind = type(failure).__name__
                    print(
                        f"=== {self._where}-{self._world}: {kind}: {failure}\n{notes}", flush=True
                    )
                    self._next = _seed_of(failure, seeds) + 1
                    return
                self._next = seeds.stop
                if time.monotonic() - self._reported > A_REPORT_S:
                    self._report()

    def _report(self) -> None:
        self._reported = time.monotonic()
        print(
            f"{self._where}-{self._world}: {self._next - self._first} programs, "
            f"{self._failed} failed, {self._slow} too slow, "
            f"{self._reported - self._begun:.0f} s",
            flush=True,
        )

    def run(self) -> None:
        while self._goes_on():
            try:
                self._until_one_fails()
            except Exception as failure:  # the workers did not end by themselves
                print(f"=== {self._where}-{self._world} at its end: {failure}", flush=True)
        self._report()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--count", type=int, default=SEEDS_OF_A_LANE)
    parser.add_argument("--first", type=int, default=int(time.time()) * 100)
    parser.add_argument("lanes", nargs="*", default=LANES)
    args = parser.parse_args()
    if len(args.lanes) == 1:
        Lane(args.lanes[0], args.first, args.count, args.seconds).run()
        return
    firsts = itertools.count(args.first, SEEDS_OF_A_LANE)
    options = [f"--seconds={args.seconds}", f"--count={args.count}"]
    command = [sys.executable, __file__, *options]
    started = [
        subprocess.Popen([*command, f"--first={first}", lane])
        for lane, first in zip(args.lanes, firsts, strict=False)
    ]
    try:
        for lane in started:
            lane.wait()
    finally:
        for lane in started:
            lane.terminate()


if __name__ == "__main__":
    main()
