"""Start one rank a device."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch_xla
from torch_xla.core import xla_model as stock

from torch_xla_cc import _C
from torch_xla_cc._pod import ranks as pod_ranks
from torch_xla_cc._runtime import forked, replicas
from torch_xla_cc._runtime.endings import RankFailed, result_of
from torch_xla_cc._runtime.environment import number, require_kind
from torch_xla_cc._runtime.private import XLAC, autograd_engine, pjrt, runtime
from torch_xla_cc._runtime.show import show
from torch_xla_cc._threads import checkpoints, compiling, cpu_devices, eager, read_hooks, worlds
from torch_xla_cc._threads.mailboxes import mailboxes

_DEFAULT_TIMEOUT_S = 600.0
_running = threading.Lock()  # held by the launch of this process
_GRACE_S = 5.0  # how long ranks that are told to stop may take
_at_end: list[Callable[[], None]] = []


def at_end(forget: Callable[[], None]) -> None:
    """Have each launch call `forget` when it ends, for what others note of its ranks."""
    _at_end.append(forget)


class _Stopped(BaseException):
    """Ends a rank because another has failed. Not an Exception: user code shall not catch it."""


class _Rank:
    """A rank's thread and what came of it."""

    def __init__(
        self,
        world: _C.World,
        rank: int,
        fn: Callable[..., Any],
        args: Sequence[Any],
        end: threading.Barrier,
    ) -> None:
        self.world = world
        self.rank = rank
        self.result: Any = None
        self.error: BaseException | None = None
        self._end = end
        # The launcher waits for this and does not join: ctrl-C in a join has Python 3.11 count a
        # thread as ended that goes on, and the process would end beneath it.
        self.ended = threading.Event()
        self._fallback = _C.thread_fallback()  # of the thread that launches
        self.thread = threading.Thread(
            target=self._run, args=(fn, args), name=f"rank {rank}", daemon=True
        )

    def _run(self, fn: Callable[..., Any], args: Sequence[Any]) -> None:
        try:
            self.world.enter(self.rank)
            XLAC._xla_set_default_device(f"xla:{self.rank}")
            _C.set_thread_fallback(self._fallback)
            with worlds.as_rank(self.rank):
                self.result = result_of(fn, self.rank, *args)
                # What is still pending runs now: peers may wait for this rank's part of it.
                torch_xla.sync()
                self.world.finish(self.rank)
                # A world that ends while another rank connects to it would fail that rank.
                with contextlib.suppress(threading.BrokenBarrierError):
                    self._end.wait(_GRACE_S)
        except BaseException as error:  # every failure of a rank is reported by the launcher
            self.error = error
            self._end.abort()
            self.world.fail(self.rank, _cause(self.rank, error))
        finally:
            self.ended.set()

    def stop(self) -> None:
        """Have the thread raise _Stopped at its next step in Python."""
        if self.thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self.thread.ident), ctypes.py_object(_Stopped)
            )


def _cause(rank: int, error: BaseException) -> str:
    where = traceback.extract_tb(error.__traceback__)
    place = f" at {where[-1].filename}:{where[-1].lineno}" if where else ""
    try:
        text = str(error)
    except Exception as unprintable:
        text = f"(its text cannot be had: {type(unprintable).__name__})"
    return f"rank {rank} has failed{place}: {type(error).__name__}: {text}"


@contextlib.contextmanager
def _world(nprocs: int, timeout_s: float) -> Iterator[_C.World]:
    """The ranks' common state, around a run of them."""
    with contextlib.ExitStack() as ends:  # in the other order, also of what an error cuts short
        devices = list(XLAC._xla_get_replication_devices())
        ends.callback(_forget_world)
        ends.callback(XLAC._xla_set_replication_devices, devices)
        stock.set_replication(torch_xla.device(0), torch_xla.devices())
        _forget_world()
        for forget in _at_end:
            ends.callback(forget)
        ends.callback(mailboxes.clear)
        mailboxes.timeout_s = timeout_s
        world = _C.World(nprocs, timeout_s)
        ends.callback(world.end)
        ends.enter_context(eager.stays_lazy())
        ends.enter_context(read_hooks.ranks_meet())
        ends.enter_context(worlds.thread_worlds(nprocs))
        ends.enter_context(compiling.compiles_on_threads(nprocs))
        ends.enter_context(checkpoints.checkpoints_on_threads())
        yield world


def _forget_world() -> None:
    """Have torch_xla and the extension count the ranks anew: both remember how many there were."""
    runtime._WORLD_SIZE = None
    _C.forget_running_target()


def _join(world: _C.World, ranks: list[_Rank]) -> None:
    """Wait for all ranks; when one fails, or on ctrl-C, stop the others."""
    try:
        while any(rank.thread.is_alive() for rank in ranks):
            for rank in ranks:
                rank.ended.wait(0.05)
            if any(rank.error is not None for rank in ranks):
                break
    except KeyboardInterrupt:
        _stop(world, ranks, "stopped by ctrl-C")
        raise
    if any(rank.error is not None for rank in ranks):
        _stop(world, ranks, "another rank has failed")


def _stop(world: _C.World, ranks: list[_Rank], why: str) -> None:
    alive = [rank for rank in ranks if rank.thread.is_alive()]
    world.abort(why)
    for attempt in range(int(_GRACE_S / 0.1)):
        alive = [rank for rank in alive if rank.thread.is_alive()]
        if not alive:
            return
        # A rank that waits for others raises what it was told; one that computes is interrupted.
        if attempt % 5 == 2:
            for rank in alive:
                rank.stop()
        time.sleep(0.1)


def _stop_at_exit(pid: int, world: _C.World, ranks: list[_Rank]) -> None:
    if os.getpid() == pid:  # a child that was forked has no such threads
        _stop(world, ranks, "the process ends")


def launch(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int | None = None,
    *,
    timeout_s: float | None = None,
    pod: bool = False,
) -> list[Any]:
    """Run `fn(rank, *args)` on every device, and return what the ranks returned, by rank.

    On CPU the ranks are threads of this process, one for each virtual device. `launch` sets up what
    they need before the runtime starts, and has one of them compile a program that all of them
    trace. If a rank raises, all are ended, and its exception is raised here, with its traceback and
    its rank. A rank that calls sys.exit(0) has ended with the result None, and the others go on.
    On other devices the ranks are processes, one for each device, as those of torch_xla.launch.

    Args:
      fn: what each rank runs.
      args: a list or tuple of its arguments after the rank.
      nprocs: the number of CPU devices; CPU_NUM_DEVICES if not given.
      timeout_s: how long ranks wait for one that does not come; TORCH_XLA_CC_TIMEOUT_S or 600 s if
        not given. Where ranks are processes XLA decides, and giving it warns.
      pod: make the ranks processes of this machine, each with a pod device (docs/pod.md). fn, args
        and results are pickled. Call launch under `if __name__ == "__main__":`, as for any way to
        start processes.
    """
    _check_call(fn, args)
    limit = timeout_of(timeout_s)
    if pod:
        return pod_ranks.run(fn, args, _pod_size(nprocs), None if timeout_s is None else limit)
    os.environ.setdefault("PJRT_DEVICE", "CPU")
    require_kind("launch")
    if runtime.device_type() != "CPU":
        if timeout_s is not None:
            warnings.warn(
                f"launch: timeout_s = {timeout_s} means nothing on {runtime.device_type()}, where "
                "ranks are processes and wait as XLA has them. Leave it out; process groups of "
                "torch.distributed have a timeout of their own",
                RuntimeWarning,
                stacklevel=2,
            )
        return _launch_processes(fn, args, nprocs)
    if nprocs is not None and (not isinstance(nprocs, int) or isinstance(nprocs, bool)):
        raise TypeError(f"launch: nprocs = {show(nprocs)}, but it must be an int")
    if nprocs is not None:
        cpu_devices.require("nprocs", nprocs)
    if forked.with_runtime():
        raise RuntimeError(
            "launch: this process was forked from one in which the XLA runtime had started, and "
            "has none of its threads. Start it by multiprocessing's 'spawn' or 'forkserver', or "
            "fork before any use of an XLA device"
        )
    if not _running.acquire(blocking=False):
        raise RuntimeError(
            "launch: a launch is running in this process, and its ranks have the devices. Call it "
            "once, from outside of them"
        )
    try:
        return _launch_threads(fn, args, nprocs, limit)
    finally:
        _running.release()


def _pod_size(nprocs: int | None) -> int:
    """How many processes, asked for or by POD_NUM_DEVICES."""
    count = number("POD_NUM_DEVICES", 1, who="launch") if nprocs is None else nprocs
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ValueError(
            f"launch: nprocs = {show(nprocs)}, but it must be a number of processes, from 1, with "
            "pod=True. Name it, or set POD_NUM_DEVICES"
        )
    return count


def _check_call(fn: object, args: object) -> None:
    if not callable(fn):
        raise TypeError(
            f"launch: fn = {show(fn)}, but it must be a function, that each rank runs: "
            "launch(fn, args, nprocs)"
        )
    if not isinstance(args, Sequence) or isinstance(args, (str, bytes)):
        ranks = f", or nprocs={args} for as many ranks" if isinstance(args, int) else ""
        raise TypeError(
            f"launch: args = {show(args)}, but it must be a list or tuple of what fn gets after "
            f"its rank. Pass ({show(args)},){ranks}"
        )


def timeout_of(given: float | None) -> float:
    """How long ranks wait for each other."""
    name, value = "timeout_s", given
    if given is None:
        name = "TORCH_XLA_CC_TIMEOUT_S"
        value = os.environ.get(name, _DEFAULT_TIMEOUT_S)  # type: ignore[assignment]
    seconds = 0.0
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        seconds = float(value)  # type: ignore[arg-type]
    if not seconds > 0:
        raise ValueError(
            f"launch: {name} = {show(value)}, but it must be a number of seconds above 0, such as "
            "600. math.inf (inf) waits for as long as it takes"
        )
    return seconds


def _launch_threads(
    fn: Callable[..., Any], args: Sequence[Any], nprocs: int | None, timeout_s: float
) -> list[Any]:
    """A thread for each virtual CPU device."""
    with (
        cpu_devices.started(nprocs) as count,
        _world(count, timeout_s) as world,
        contextlib.ExitStack() as ends,
    ):
        end = threading.Barrier(count)
        ranks = [_Rank(world, rank, fn, args, end) for rank in range(count)]
        # A launch on a thread that the end of the process does not wait for: its ranks would run
        # on without an interpreter.
        at_exit = functools.partial(_stop_at_exit, os.getpid(), world, ranks)
        atexit.register(at_exit)
        ends.callback(atexit.unregister, at_exit)
        # In a process that was forked, the first use of autograd makes its engine anew, and so does
        # a second that comes meanwhile on another thread: one ended the process (SIGSEGV), or hung.
        autograd_engine.is_checkpoint_valid()
        for rank in ranks:
            rank.thread.start()
        _join(world, ranks)
        if any(rank.error is not None for rank in ranks):
            # What failed ranks left in their graphs shall not run in a later launch. One that is
            # left behind may have the rank's turn until its world ends.
            world.end()
            for rank in ranks:
                read_hooks.drop(rank.rank)
        else:
            mailboxes.check_empty()
    _raise_first(ranks)
    return [rank.result for rank in ranks]


def _distance(error: BaseException | None) -> int:
    """How far from the cause of a launch's failure an error is."""
    if isinstance(error, _Stopped):
        return 3
    if type(error) is _C.RanksDisagree:
        return 2  # most often that another rank has failed; mismatches and timeouts have a type
    return 1 if isinstance(error, _C.RanksDisagree) else 0


def _raise_first(ranks: list[_Rank]) -> None:
    """Raise the failure that caused the others."""
    failed = [rank for rank in ranks if rank.error is not None]
    # A rank that was stopped, or told of a peer's failure, is not the cause.
    for rank in sorted(failed, key=lambda rank: _distance(rank.error)):
        error = rank.error
        assert error is not None
        if hasattr(error, "add_note"):  # Python 3.11
            error.add_note(f"raised by rank {rank.rank} of {len(ranks)}")
        raise error
    stuck = [str(rank.rank) for rank in ranks if rank.thread.is_alive()]
    if stuck:
        raise RankFailed(
            f"launch: ranks {', '.join(stuck)} are still running, though they were stopped: end "
            "this process, and start it again"
        )


class _RankCall:
    """fn(rank, *args), for another process: it is pickled."""

    def __init__(self, fn: Callable[..., Any], args: Sequence[Any]) -> None:
        self.fn = fn
        self.args = tuple(args)

    def __call__(self) -> Any:  # noqa: ANN401 (as fn)
        return self.fn(runtime.global_ordinal(), *self.args)


def _launch_processes(fn: Callable[..., Any], args: Sequence[Any], nprocs: int | None) -> list[Any]:
    """A process for each device of this machine; what those return, by rank."""
    if nprocs is not None and nprocs != 1:
        raise ValueError(
            f"launch: nprocs = {nprocs}, but on {runtime.device_type()} every device of the "
            "machine takes part. Leave nprocs out"
        )
    call = _RankCall(fn, args)
    if torch.distributed.is_torchelastic_launched():
        # torchrun has started this process for one device; torch_xla takes it for the whole world.
        replicas.require(number("WORLD_SIZE", 1, who="launch"), "launch")
        return [call()]
    if nprocs == 1:
        return [pjrt._run_singleprocess(call)]
    by_rank = pjrt.run_multiprocess(call)
    return [by_rank[rank] for rank in sorted(by_rank)]
