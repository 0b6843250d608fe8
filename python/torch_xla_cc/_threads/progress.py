"""What a rank of a pod has pending runs though it neither reads nor steps.

Calls of torch.distributed stay in its graph, and with other backends they would be under way. So
they run at the end of an optimizer's step, in scripts that do not step by torch_xla.sync(); and
where another rank waits for them, while this one waits for something that is not in its graph.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import torch
import torch_xla
from torch.optim.optimizer import register_optimizer_step_post_hook

from torch_xla_cc import _C
from torch_xla_cc._processes import waits, world
from torch_xla_cc._runtime import chains
from torch_xla_cc._runtime.device_tensors import ends_a_step
from torch_xla_cc._runtime.private import run_backward
from torch_xla_cc._threads import read_hooks

_LOOK_MS = 5000
QUIET_MS = 200  # for which a thread that traces has something to do with a tensor
_LONG_MS = 2000  # the same, of a thread that computes, or was not given a CPU for a while
INSISTS_S = 10.0  # after which threads that do not come to run it are held up

_OURS = tuple(f"{Path(module.__file__ or '').parent}/" for module in (torch_xla, _C))
_begun = threading.Lock()
_runs = threading.Lock()
_synced: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()


def begin(*, pod: bool) -> None:
    """From the first group on whose calls stay in the graph.

    A pod says whether others wait for what this rank has pending; elsewhere they say so themselves
    (_processes/listening.py).
    """
    if not _begun.acquire(blocking=False):
        return
    register_optimizer_step_post_hook(_after_step)
    atexit.register(_at_end, os.getpid())
    if pod:
        rank = read_hooks.default_rank()
        threading.Thread(target=_serve, args=(rank, os.getpid()), daemon=True).start()


def limit(members: list[int], milliseconds: int) -> None:
    """How long a rank may wait in a collective of a group."""
    array = (ctypes.c_int64 * len(members))(*members)
    _plugin().torch_xla_cc_pod_limit(
        array, ctypes.c_int64(len(members)), ctypes.c_int64(milliseconds)
    )


def _plugin() -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(_C.__file__).with_name("libpod.so")))


def _after_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """An optimizer has stepped: that is a step of the script too, if it has no other.

    Of those that step others inside of their own step the outermost counts.
    """
    if not ends_a_step(optimizer, _after_step):
        return
    syncs = read_hooks.syncs()
    if _synced.get(optimizer, syncs) == syncs:
        read_hooks.run_pending(read_hooks.default_rank())
    _synced[optimizer] = syncs


def _at_end(pid: int) -> None:
    """If the script ends well, what it has called runs: others may wait for it."""
    if os.getpid() != pid:
        return
    _runs.acquire()  # for good: no other thread may be in it when the interpreter ends
    if getattr(sys, "last_value", None) is None:
        with contextlib.suppress(RuntimeError):  # all is lost: who reads is told
            if agreed := world.active():
                agreed.end()
            else:
                read_hooks.run_pending(read_hooks.default_rank())


def _serve(rank: int, pid: int) -> None:
    wanted = _plugin().torch_xla_cc_pod_wanted
    wanted.argtypes, wanted.restype = (ctypes.c_int64, ctypes.c_int64), ctypes.c_int64
    seen = 0
    since: tuple[float, int] | None = None  # when what is pending was first wanted, and which it is
    while os.getpid() == pid:
        times = wanted(seen, _LOOK_MS)  # which those that wait say every 2 s at least
        if times == seen:
            since = None
            continue
        seen = times
        with running_for_others() as goes_on:
            if not goes_on:
                return
            now, number = time.monotonic(), chains.ends()
            if not chains.is_pending(rank, ()):
                since = None
                continue
            if since is None or since[1] != number:  # the last has run
                since = now, number
            insists = now - since[0] > INSISTS_S
            when_idle(functools.partial(_run, rank), QUIET_MS, insists=insists)


def _run(rank: int) -> None:
    if chains.is_pending(rank, ()):
        read_hooks.run_all(rank)


@contextlib.contextmanager
def running_for_others() -> Iterator[bool]:
    """Around what another thread than the script's runs; False if the process ends."""
    goes_on = _runs.acquire(blocking=False)
    try:
        yield goes_on
    finally:
        if goes_on:
            _runs.release()


def when_idle(run: Callable[[], None], quiet_ms: int, *, insists: bool) -> None:
    """Run it on this thread, if no other has to do with tensors, which would do it itself.

    A thread that has, and does not, is held up at its next operator if this `insists`.
    """
    with _C.op_gate() as gate:
        comes = not gate.is_quiet(quiet_ms)
        if not comes and _may_go_on():
            comes = insists and not gate.is_quiet(_LONG_MS)
            if not comes and (not insists or _autograd_computes()):
                return
        if comes and not insists:
            return
        if _is_in_torch_xla():
            return
        gate.park()
        run()


def _may_go_on() -> bool:
    """Whether another thread may be between two operators, where it asks tensors for their shapes.

    Of a graph that is being run torch_xla cannot tell them, and raises.
    """
    return _is_in_backward() or _state(threading.main_thread().native_id) in "RD"


def _is_in_backward() -> bool:
    """Whether one waits for autograd, whose threads ask without an operator, and without Python."""
    return any(frame.f_code is run_backward.__code__ for frame in sys._current_frames().values())


def _autograd_computes() -> bool:
    """Whether one of its threads runs or would; not if all wait, as where a hook waits for a peer.

    Then who waits for this rank would wait for ever.
    """
    threads = [int(task.name) for task in Path("/proc/self/task").iterdir()]
    return any(
        _name(thread).startswith("pt_autograd") and _state(thread) in "RD" for thread in threads
    )


def _name(thread: int) -> str:
    try:
        return Path(f"/proc/self/task/{thread}/comm").read_text()
    except OSError:
        return ""


def _state(thread: int | None) -> str:
    """As the kernel has it: R if it runs or would if it had a CPU, S if it waits."""
    try:
        return Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"  # it has ended


def _is_in_torch_xla() -> bool:
    """Whether another thread runs, reads, captures or traces something by torch_xla or by us."""
    if _C.reads_under_way():
        return True
    own = threading.get_ident()
    return any(
        _is_at_work(frame)
        for thread, frame in sys._current_frames().items()
        if thread != own and not waits.does_nothing(thread)
    )


def _is_at_work(innermost: FrameType) -> bool:
    if innermost.f_code.co_filename.startswith(_OURS):
        return True
    frame: FrameType | None = innermost
    while frame is not None:  # what calls operators of a graph that is not to be run now
        if frame.f_code in chains.APART:
            return True
        frame = frame.f_back
    return False
