"""Runs functions on ranks that are processes of torchrun, each with a CPU device of its own.

As worlds.py does for threads: `run(size, fn, *args)` returns the results by rank, or raises the
exception of a rank. One torchrun, kept while its size is asked for.
"""

from __future__ import annotations

import contextlib
import multiprocessing.connection as mpc
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import worlds

_START_S = 150.0
_FOLDERS = [str(Path(__file__).parent), str(Path(worlds.__file__).parent)]


class Processes:
    """A torchrun and its ranks."""

    def __init__(self, size: int, env: dict[str, str] | None = None) -> None:
        self.size = size
        self._env = env or {}
        self._torchrun: subprocess.Popen[bytes] | None = None
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
        """((exception, traceback) or None, result) by rank; None for a rank that has died."""
        if self._torchrun is None:
            self._start()
        request = worlds._dumps((fn, args))
        for pipe in self._ranks:
            pipe.send_bytes(request)
        end = time.monotonic() + timeout_s
        found: list[Any] = []
        for rank, pipe in enumerate(self._ranks):
            try:
                if not pipe.poll(max(0.1, end - time.monotonic())):
                    report = self._report(f"rank {rank} took more than {timeout_s:g} s")
                    self.close()
                    raise worlds.WorkerHung(report)
                found.append(pickle.loads(pipe.recv_bytes()))
            except (EOFError, ConnectionError):
                found.append(None)
        if None in found:
            self.close()
        return found

    def close(self) -> None:
        """End torchrun and its ranks."""
        if self._torchrun is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._torchrun.pid, signal.SIGKILL)
            self._torchrun.wait()
            for pipe in self._ranks:
                pipe.close()
            self._log.close()
            self._folder.cleanup()
            self._torchrun = None
            self._ranks = []

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        address = f"{self._folder.name}/ranks"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the ranks)
        with mpc.Listener(address, "AF_UNIX", backlog=self.size) as listener:
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
            command += [f"--nproc-per-node={self.size}", "--max-restarts=0", __file__, address]
            path = os.pathsep.join([*_FOLDERS, *sys.path])
            self._torchrun = subprocess.Popen(
                command,
                env={
                    **os.environ,
                    "PYTHONPATH": path,
                    "PJRT_DEVICE": "CPU",
                    "OMP_NUM_THREADS": "1",
                    **self._env,
                },
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,  # to be ended with its ranks
            )
            listener._listener._socket.settimeout(_START_S)  # type: ignore[attr-defined]
            try:
                arrived = [listener.accept() for _ in range(self.size)]
                told = sorted((pipe.recv(), i) for i, pipe in enumerate(arrived))
            except (TimeoutError, EOFError, OSError) as error:
                report = self._report("did not start")
                self.close()
                raise worlds.WorkerDied(report) from error
        self._ranks = [arrived[i] for _, i in told]
        self.pids = [pid for (_, pid), _ in told]

    def _report(self, what: str) -> str:
        size = os.fstat(self._log.fileno()).st_size
        tail = os.pread(self._log.fileno(), 12_000, max(0, size - 12_000))
        return f"torchrun of {self.size} ranks: {what}; the end of its output:\n" + tail.decode(
            errors="replace"
        )


_MOST_KEPT = 1  # of about 1 GB a rank
_kept: dict[int, Processes] = {}


def run(size: int, fn: Any, *args: Any, timeout_s: float = 60.0) -> list[Any]:
    """`fn(rank, *args)` on every rank of the kept torchrun of that size."""
    return worlds.keep(_kept, size, _MOST_KEPT, Processes).run(fn, *args, timeout_s=timeout_s)


def close_all() -> None:
    """End all; conftest.py calls it at the end of the session."""
    for ranks in _kept.values():
        ranks.close()


# Below: a rank.


def _work() -> None:
    rank = int(os.environ["RANK"])
    pipe = mpc.Client(sys.argv[1], "AF_UNIX")
    import torch_xla_cc.distributed  # noqa: F401

    pipe.send((rank, os.getpid()))
    while True:
        try:
            fn, args = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        try:
            answer = worlds._dumps((None, fn(rank, *args)))
        except BaseException as error:
            where = traceback.format_exc()
            try:
                answer = worlds._dumps(((error, where), None))
                pickle.loads(answer)
            except Exception:
                plain = RuntimeError(f"{type(error).__name__}: {error}")
                answer = worlds._dumps(((plain, where), None))
        pipe.send_bytes(answer)


if __name__ == "__main__":
    import processes

    processes._work()
    sys.stdout.flush()
    os._exit(0)
