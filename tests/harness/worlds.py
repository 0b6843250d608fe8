"""Runs functions on ranks: real torch_xla virtual CPU devices, in worker processes that are kept.

    def gather(rank, size):  # at the top of a test file
        return xm.all_gather(torch.full((size,), float(rank), device=torch_xla.device())).tolist()

    def test_gather():
        assert worlds.run(4, gather, 2) == [[0, 0, 1, 1, 2, 2, 3, 3]] * 4

`run(world_size, fn, *args)` calls `fn(rank, *args)` under torch_xla_cc.launch and returns the
results by rank. An XLA runtime has a fixed number of devices, so there is one worker process per
world size, started at first use and kept while few other sizes are used. What a function leaves in
its process (caches, installed patches, environment) is there for the next one.

Functions, arguments and results travel by pickle: the function must be at the top of a module that
pytest has imported; results are plain data, NumPy arrays or tensors on the CPU (all dtypes).

What can go wrong:
  - An exception of a rank is raised here, with its type; the worker's traceback is its __cause__.
  - A worker that dies (an abort of XLA, a signal) raises WorkerDied, one that takes longer than
    `timeout_s` is killed and raises WorkerHung; both with the end of its stderr. The next run gets
    a new worker.

A test that needs a process of its own, or an environment (XLA_FLAGS), makes a World:

    with worlds.World(4, env={"XLA_FLAGS": f"--xla_dump_to={folder}"}) as world:
        world.run(gather, 2)

`partitions(world_size)` is such a World for a function that is not of a rank, in torch_xla's SPMD
mode: it is called once, and `run` returns its result.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import multiprocessing.connection
import os
import pickle
import signal
import socket
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import forks
import torch
import torchrun
import waiting

_START_S = 120.0  # the first imports torch and torch_xla, on a busy machine
FAST = {
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
    "XLA_COMPILATION_CACHE_SIZE": "150",  # docs/ranks.md, at its end: workers compile thousands
}
FULL = {"XLA_FLAGS": ""}


class WorkerDied(Exception):
    """The process of the ranks ended while they ran."""


class WorkerHung(Exception):
    """The ranks took longer than they may."""


class RemoteTraceback(Exception):
    """Where in the worker an exception was raised."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _tensor(data: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    empty = torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape) if data else empty


class _Pickler(pickle.Pickler):
    """Takes tensors by their bytes: torch's own way cannot read float8 back."""

    def reducer_override(self, item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return NotImplemented
        if item.device.type != "cpu":
            # It would come to life on a device of the process that reads it.
            raise TypeError("a tensor on an XLA device cannot leave its process: use .cpu()")
        data = item.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return _tensor, (data, item.dtype, tuple(item.shape))


def _dumps(value: Any) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer).dump(value)
    return buffer.getvalue()


class World:
    """A worker process in which launches of `world_size` ranks run, one after the other."""

    def __init__(self, world_size: int, env: dict[str, str] | None = None) -> None:
        self.world_size = world_size
        self._env = {**FAST, **(env or {})}
        self._process: Any = None

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The worker's process id; none if it does not run."""
        return None if self._process is None else self._process.pid

    def run(
        self,
        fn: Any,
        *args: Any,
        timeout_s: float = 60.0,
        launch_timeout_s: float | None = None,
    ) -> list[Any]:
        """`fn(rank, *args)` on every rank; the results by rank.

        `launch_timeout_s` is how long ranks wait for each other, by default half of `timeout_s`:
        a rank that never comes is then reported by torch_xla_cc and not by the death of the worker.
        """
        if launch_timeout_s is None:
            launch_timeout_s = timeout_s / 2
        if self._process is None:
            self._start()
        log_start = os.fstat(self._log.fileno()).st_size
        request = _dumps((fn, args, launch_timeout_s))
        try:
            self._pipe.send_bytes(request)
            if not waiting.Patience(timeout_s).answers(self._pipe):
                stands = waiting.where(self._process, self._log)
                what = f"took more than {timeout_s:g} s; {stands}"
                raise WorkerHung(self._report(what, log_start))
            answer = self._pipe.recv_bytes()
        except (EOFError, ConnectionError) as error:
            report = self._report(death_of(self._process), log_start)
            self.close()
            raise WorkerDied(report) from error
        except BaseException:  # also pytest-timeout and ctrl-C: the answer would come too late
            self.close()
            raise
        error, results = pickle.loads(answer)
        if error is not None:
            error, where = error
            raise error from RemoteTraceback(where)
        return results

    def close(self) -> None:
        """End the worker, which nothing but a kill is sure to do while ranks wait in XLA."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._log.close()
            self._process = None

    def _start(self) -> None:
        self._pipe, theirs = multiprocessing.connection.Pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        with theirs:
            self._process = forks.start(
                _work,
                theirs,
                self.world_size,
                env={**os.environ, **self._env},
                output=self._log,
            )
        ready = False
        try:
            with contextlib.suppress(EOFError, ConnectionError):
                ready = (
                    waiting.Patience(_START_S).answers(self._pipe) and self._pipe.recv() == "ready"
                )
        except BaseException:  # a test that is interrupted
            self.close()
            raise
        if not ready:
            report = self._report("did not start")
            self.close()
            raise WorkerDied(report)

    def _report(self, what: str, log_start: int = 0) -> str:
        """What happened, and the end of what the worker has printed since."""
        tail = waiting.output(self._log, log_start)
        return f"the worker of {self.world_size} ranks {what}; the end of its output:\n{tail}"


def death_of(process: Any) -> str:
    """How a process that is ending ends."""
    process.join(10)
    code = process.exitcode
    if code is None:
        return "closed its pipe, and runs on"
    return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def partitions(world_size: int, env: dict[str, str] | None = None) -> World:
    """A process with so many devices in torch_xla's SPMD mode."""
    spmd = {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(world_size), "XLA_USE_SPMD": "1"}
    return World(world_size, {**spmd, **(env or {})})


_MOST_KEPT = 3  # of 1 to 2 GB each, in each pytest process
_worlds: dict[tuple[int, bool], World] = {}  # the one used last is last


def keep(kept: dict[Any, Any], key: Any, most: int, make: Callable[[], Any]) -> Any:
    """The kept one of that key, or a new one; those that were not used for longest are closed."""
    kept[key] = kept.pop(key, None) or make()
    while len(kept) > most:
        kept.pop(next(iter(kept))).close()
    return kept[key]


def run(
    world_size: int,
    fn: Any,
    *args: Any,
    timeout_s: float = 60.0,
    launch_timeout_s: float | None = None,
    full: bool = False,
) -> list[Any]:
    """`fn(rank, *args)` on every rank of the kept world of that size; the results by rank.

    `full`: its programs are compiled with all optimisations.
    """
    if os.environ.get(torchrun.ON_POD):
        import pods

        return pods.run(world_size, fn, *args, timeout_s=timeout_s)
    make = functools.partial(World, world_size, FULL if full else FAST)
    world = keep(_worlds, (world_size, full), _MOST_KEPT, make)
    return world.run(fn, *args, timeout_s=timeout_s, launch_timeout_s=launch_timeout_s)


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def close_all() -> None:
    """End all kept workers; conftest.py calls it at the end of the session."""
    for world in _worlds.values():
        world.close()


# Below: the worker.


def _answer(world_size: int, request: bytes) -> tuple[bytes, bool]:
    """The pickled ((exception, traceback) or None, results), and whether all went well."""
    from torch_xla import runtime

    import torch_xla_cc

    try:
        fn, args, timeout_s = pickle.loads(request)
        if runtime.is_spmd():
            results = fn(*args)
        else:
            results = torch_xla_cc.launch(fn, args, world_size, timeout_s=timeout_s)
        return _dumps((None, results)), True
    except BaseException as error:
        return failure(error), False


def failure(error: BaseException) -> bytes:
    """What travels for an exception and its traceback, in place of results."""
    where = traceback.format_exc()
    try:
        answer = _dumps(((error, where), None))
        pickle.loads(answer)
    except Exception:  # an exception that cannot travel
        answer = _dumps(((RuntimeError(f"{type(error).__name__}: {error}"), where), None))
    return answer


def _work(pipe: multiprocessing.connection.Connection, world_size: int) -> None:
    waiting.tell()
    pipe.send("ready")
    while True:
        try:
            request = pipe.recv_bytes()
        except EOFError:
            os._exit(0)  # threads that still wait in XLA would keep the process
        answer, well = _answer(world_size, request)
        pipe.send_bytes(answer)
        if not well:
            gc.collect()  # the frames of the failed run, and the tensors in them
