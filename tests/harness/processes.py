"""Runs functions on ranks that are processes, each with a CPU device of its own.

As worlds.py does for threads: `run(size, fn, *args)` returns the results by rank, or raises the
exception of a rank. The ranks are kept while their number is asked for.
"""

from __future__ import annotations

import functools
import multiprocessing.connection
import os
import pickle
import tempfile
from typing import Any

import torchrun
import waiting
import worlds

_START_S = 150.0


class Processes:
    """So many ranks."""

    def __init__(self, size: int, env: dict[str, str] | None = None) -> None:
        self.size = size
        self._env = {**worlds.FAST, **(env or {})}
        self._started: torchrun.Ranks | None = None
        self._ranks: list[Any] = []
        self.pids: list[int] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, fn: Any, *args: Any, timeout_s: float = 60.0) -> list[Any]:
        """`fn(rank, *args)` on every rank; the results by rank."""
        outcomes = self.outcomes(fn, *args, timeout_s=timeout_s)
        errors = {rank: error for rank, (error, _) in enumerate(outcomes) if error is not None}
        if errors:  # one may be of a rank that waited for what failed on another
            where = "\n".join(f"rank {rank}: {error[1]}" for rank, error in errors.items())
            raise next(iter(errors.values()))[0] from worlds.RemoteTraceback(where)
        return [result for _, result in outcomes]

    def outcomes(self, fn: Any, *args: Any, timeout_s: float = 60.0) -> list[Any]:
        """((exception, traceback) or None, result) by rank."""
        if self._started is None:
            self._start()
        request = worlds._dumps((fn, args))
        patience = waiting.Patience(timeout_s)
        found: list[Any] = []
        try:
            for pipe in self._ranks:
                pipe.send_bytes(request)
            for rank in range(self.size):
                found.append(self._answer(rank, patience))
            return found
        except worlds.WorkerHung as error:
            said = [f"rank {rank}: {one[0][0]!r}" for rank, one in enumerate(found) if one[0]]
            error.add_note("\n".join([f"{len(found)} had answered", *said]))
            self.close()
            raise
        except BaseException:  # also pytest-timeout and ctrl-C: answers would come too late
            self.close()
            raise

    def of_survivors(self, fn: Any, *args: Any, timeout_s: float = 60.0) -> list[Any]:
        """As `run`, of ranks that may die: None for those that have. Then this is closed."""
        if self._started is None:
            self._start()
        request = worlds._dumps((fn, args))
        patience = waiting.Patience(timeout_s)
        found: list[Any] = []
        try:
            for pipe in self._ranks:
                pipe.send_bytes(request)
            for rank in range(self.size):
                try:
                    error, result = self._answer(rank, patience)
                except worlds.WorkerDied:
                    found.append(None)
                    continue
                if error is not None:
                    raise error[0] from worlds.RemoteTraceback(error[1])
                found.append(result)
        finally:
            self.close()
        return found

    def _answer(self, rank: int, patience: waiting.Patience) -> Any:
        pipe = self._ranks[rank]
        try:
            if not patience.answers(pipe):
                others = [other for other in range(self.size) if other != rank]
                stands = "\n".join(
                    f"rank {one}: {waiting.where(self._started.processes[one], self._log)}"
                    for one in (rank, *others)
                )
                what = f"rank {rank} took more than {patience.seconds:g} s; {stands}"
                raise worlds.WorkerHung(self._report(what))
            return pickle.loads(pipe.recv_bytes())
        except (EOFError, ConnectionError) as error:
            how = worlds.death_of(self._started.processes[rank])
            raise worlds.WorkerDied(self._report(f"rank {rank} {how}")) from error

    def close(self) -> None:
        """End the ranks."""
        if self._started is not None:
            self._started.close()
            for pipe in self._ranks:
                pipe.close()
            self._log.close()
            self._started = None
            self._ranks = []

    def _start(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the ranks)
        pairs = [multiprocessing.connection.Pipe() for _ in range(self.size)]
        self._ranks = [ours for ours, _ in pairs]
        self._started = torchrun.Ranks(
            self.size, _work, [(theirs,) for _, theirs in pairs], self._env, self._log
        )
        for _, theirs in pairs:
            theirs.close()
        patience = waiting.Patience(_START_S)
        try:
            for pipe in self._ranks:
                if not patience.answers(pipe):
                    raise EOFError
                assert pipe.recv() == "ready"
        except BaseException as error:
            report = self._report("did not start")
            self.close()
            if not isinstance(error, (EOFError, ConnectionError)):
                raise
            raise worlds.WorkerDied(report) from error
        self.pids = [process.pid for process in self._started.processes]

    def _report(self, what: str) -> str:
        tail = waiting.output(self._log)
        return f"{self.size} ranks: {what}; the end of their output:\n{tail}"


_MOST_KEPT = 1  # of about 1 GB a rank
_kept: dict[int, Processes] = {}


def run(size: int, fn: Any, *args: Any, timeout_s: float = 60.0) -> list[Any]:
    """`fn(rank, *args)` on every rank of those kept of that number."""
    ranks = worlds.keep(_kept, size, _MOST_KEPT, functools.partial(Processes, size))
    try:
        return ranks.run(fn, *args, timeout_s=timeout_s)
    except BaseException:
        ranks.close()  # what failed may have left a world, in which the next test would fail too
        raise


def close_all() -> None:
    """End all; conftest.py calls it at the end of the session."""
    for ranks in _kept.values():
        ranks.close()


# Below: a rank.

_OF_TORCHRUN = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK"),
    *("ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
)


def _called(fn: Any, rank: int, args: tuple[Any, ...]) -> Any:
    """A function that leaves a rank another WORLD_SIZE makes a later test's world wait for ever."""
    before = {name: os.environ.get(name) for name in _OF_TORCHRUN}
    try:
        result = fn(rank, *args)
    finally:
        left = {
            name: (was, now)
            for name, was in before.items()
            if (now := os.environ.pop(name, None)) != was
        }
        os.environ.update({name: was for name, was in before.items() if was is not None})
    assert not left, f"{fn.__name__} left other variables of torchrun than it found: {left}"
    return result


def _work(pipe: multiprocessing.connection.Connection) -> None:
    rank = int(os.environ["RANK"])
    waiting.tell()
    pipe.send("ready")
    while True:
        try:
            fn, args = pickle.loads(pipe.recv_bytes())
        except EOFError:
            os._exit(0)  # threads of a backend would keep the process
        try:
            answer = worlds._dumps((None, _called(fn, rank, args)))
        except BaseException as error:
            answer = worlds.failure(error)
        pipe.send_bytes(answer)
