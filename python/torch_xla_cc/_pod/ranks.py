"""Ranks of a pod on this machine: processes with the environment that torchrun gives.

torch and torch_xla are imported by functions alone: a child imports this before anything else.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import pickle
import secrets
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple

from torch_xla_cc._runtime.endings import RankFailed, result_of

_HOST = "127.0.0.1"
_GRACE_S = 5.0  # how long ranks may take to hear that another has failed
_LOOK_S = 1.0
_TO_END_S = 60.0
_CAUSE_S = 2.0  # how much later than its consequences a failure may be seen
_CONSEQUENCE = "No collective can run any more"  # pod_device/server.py
_COLLECTIVES = "TORCH_XLA_CC_POD_COLLECTIVES"
_PR_SET_PDEATHSIG = 1
_environment = threading.Lock()  # of this process, while a child takes it over

_Environment = dict[str, str | None]  # None: it is not set


class _Rank(NamedTuple):
    process: SpawnProcess
    said: Connection[Any, Any]


class _Said(NamedTuple):
    """What a rank returned, or raised."""

    result: Any
    error: bytes  # pickled, if that can be
    where: str


def run(
    fn: Callable[..., Any], args: Sequence[Any], nprocs: int, timeout_s: float | None
) -> list[Any]:
    """`fn(rank, *args)` on as many processes as `nprocs`; what they return, by rank."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    from txcc_pod import held_port

    # As the agent of torchrun, which keeps the store of its ranks.
    store = TCPStore(_HOST, 0, is_master=True, wait_for_workers=False)
    port = held_port()
    common: _Environment = {
        "PJRT_DEVICE": "POD",
        "WORLD_SIZE": str(nprocs),
        "LOCAL_WORLD_SIZE": str(nprocs),
        "MASTER_ADDR": _HOST,
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_RUN_ID": "torch_xla_cc.launch",
        # Not in that store, which anyone on the machine can read.
        "TORCH_XLA_CC_POD_ADDRESS": f"{_HOST}:{port.getsockname()[1]}",
        "TORCH_XLA_CC_POD_TOKEN": secrets.token_hex(16),
    }
    if os.environ.get(_COLLECTIVES) == "mpi":  # for ranks that mpirun starts
        common[_COLLECTIVES] = None
    if timeout_s is not None:
        common["TORCH_XLA_CC_TIMEOUT_S"] = str(timeout_s)
    ranks: list[_Rank] = []
    try:
        for rank in range(nprocs):
            ranks.append(_start(fn, args, {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}))
        results = _results(ranks)
        until = time.monotonic() + _TO_END_S
        for started in ranks:  # its own ends may take long, or a thread of it run on
            started.process.join(max(0.0, until - time.monotonic()))
        return results
    finally:
        _end(ranks)
        port.close()


def _start(fn: Callable[..., Any], args: Sequence[Any], env: _Environment) -> _Rank:
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=_work, args=(os.getpid(), theirs, fn, tuple(args)), name=f"rank {env['RANK']}"
    )
    with _changed(env):  # what the user's own module does when it is imported sees it too
        process.start()
    theirs.close()
    return _Rank(process, ours)


@contextlib.contextmanager
def _changed(env: _Environment) -> Iterator[None]:
    with _environment:
        before = {name: os.environ.get(name) for name in env}
        _set(env)
        try:
            yield
        finally:
            _set(before)


def _set(env: _Environment) -> None:
    for name, value in env.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _results(ranks: list[_Rank]) -> list[Any]:
    """What each rank returns; raises what the first failed by."""
    results: dict[int, Any] = {}
    failures: list[tuple[int, BaseException, str]] = []
    silent = dict(enumerate(ranks))
    failed_at = None
    while silent and (failed_at is None or time.monotonic() < failed_at + _CAUSE_S):
        ready = wait([rank.said for rank in silent.values()], _LOOK_S)
        # A child that a rank has forked holds its pipe open.
        ended = [n for n, rank in silent.items() if rank.process.exitcode is not None]
        for number in {*ended, *(n for n, rank in silent.items() if rank.said in ready)}:
            rank = silent.pop(number)
            result, error, where = _said(rank)
            if error is None:
                results[number] = result
            else:
                failures.append((number, error, where))
                failed_at = failed_at or time.monotonic()
    for number, error, where in sorted(failures, key=lambda failure: _follows(failure[1])):
        if hasattr(error, "add_note"):  # Python 3.11
            error.add_note(f"raised by rank {number} of {len(ranks)}{where and ':'}\n{where}")
        raise error
    return [results[number] for number in range(len(ranks))]


def _follows(error: BaseException) -> bool:
    """Whether it tells of what another rank failed by."""
    return _CONSEQUENCE in str(error)


def _said(rank: _Rank) -> tuple[Any, BaseException | None, str]:
    name = rank.process.name
    try:
        if not rank.said.poll():
            raise EOFError
        said: _Said = pickle.loads(rank.said.recv_bytes())
    except EOFError:
        rank.process.join(_GRACE_S)
        return None, RankFailed(f"launch: {name} {_how(rank.process.exitcode)}"), ""
    except Exception as error:  # a class that this process has not, or that does not unpickle
        return None, RankFailed(f"launch: what {name} returned: {error}"), ""
    if not said.where:
        return said.result, None, ""
    try:
        raised = pickle.loads(said.error)
        assert isinstance(raised, BaseException)
    except Exception:
        return None, RankFailed(f"launch: {name} failed:\n{said.where}"), ""
    return None, raised, said.where


def _how(code: int | None) -> str:
    if code is None:
        return "closed its pipe, and did not end"
    if code < 0:
        return f"was killed by signal {-code} ({signal.strsignal(-code)})"
    return f"ended with status {code} before it returned"


def _end(ranks: list[_Rank]) -> None:
    """Wait for all that have returned; those that have not hear of a failure, and are ended."""
    limit = time.monotonic() + _GRACE_S
    for end in (None, "terminate", "kill"):
        for rank in ranks:
            if end is not None and rank.process.is_alive():
                getattr(rank.process, end)()
        for rank in ranks:
            rank.process.join(max(0.1, limit - time.monotonic()))
        limit = time.monotonic() + 1.0
    for rank in ranks:
        rank.said.close()


def _work(
    parent: int, pipe: Connection[Any, Any], fn: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    """A rank, which ends with the process that launched it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it had ended before
        os._exit(1)
    rank = int(os.environ["RANK"])
    try:
        _join(rank)
        said = _Said(result_of(fn, rank, *args), b"", "")
    except BaseException as error:
        said = _Said(None, _pickled(error), traceback.format_exc())
    try:
        # Not as multiprocessing does: tensors would share files of this process.
        message = pickle.dumps(said)
    except Exception as error:  # what the classes of the result raise
        failed = RankFailed(f"launch: what rank {rank} returned cannot be pickled: {error}")
        message = pickle.dumps(_Said(None, _pickled(failed), str(failed)))
    pipe.send_bytes(message)


def _pickled(error: BaseException) -> bytes:
    try:
        return pickle.dumps(error)
    except Exception:  # what its own class raises
        return b""


def _join(rank: int) -> None:
    """Make this process a rank for torch_xla, as its own launch does."""
    import txcc_pod
    from torch_xla_cc._runtime.private import pjrt, runtime

    txcc_pod.register()
    pjrt.initialize_multiprocess(rank, int(os.environ["LOCAL_WORLD_SIZE"]))
    runtime._init_world_size_ordinal()
