"""The one way to execution for ranks that are threads.

Every way in which torch_xla runs a pending graph goes through here while `launch` runs: the step
marker and its relatives as wrapped functions of `_XLAC`, reads of single tensors as kernels in C++
(read_hooks.h). Here a rank with pending collectives waits for its peers, mismatches are raised, and
ranks that made the same program compile it once. A rank of a pod comes through here as well, from
its first collective on: it meets nobody, but what is pending runs as a whole, in the calls' order.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torch_xla_cc import _C
from torch_xla_cc._processes import world
from torch_xla_cc._runtime import chains
from torch_xla_cc._runtime.device_tensors import replace, xla_tensors_of
from torch_xla_cc._runtime.patches import Changes, Patches
from torch_xla_cc._runtime.private import XLAC, runtime
from torch_xla_cc._threads import captured, compile_lock, loops, salvage, traced

# Functions of _XLAC that run, or hand out, what pending tensors will be.
_READERS = (
    "_xla_sync_multi",
    "_xla_sync_live_tensors",
    "_xla_get_cpu_tensors",
    "_to_dlpack",
    "_unsafe_buffer_pointer",
    "_get_local_shards",
    "_on_ready_callback",
)


# Given a rank, whether it steps, and else what it reads, if known: a context to do so in.
Around = Callable[[int, bool, tuple[torch.Tensor, ...]], contextlib.AbstractContextManager[None]]


class _Thread(threading.local):
    """What holds for one thread."""

    around: Around | None = None


_thread = _Thread()
# As they were when the hooks were put in place. Kept when they go: a thread may still be in one.
_originals: dict[str, Callable[..., Any]] = {}
_syncs = 0
_ranks_meet = False  # a launch runs; else the hooks are there for `running`, or a pod, if at all


def _around(
    rank: int, steps: bool, read: tuple[torch.Tensor, ...] = ()
) -> contextlib.AbstractContextManager[None]:
    return _thread.around(rank, steps, read) if _thread.around else contextlib.nullcontext()


def _rank_of(device: str) -> int:
    return int((device or XLAC._xla_get_default_device()).rpartition(":")[2])


def _program_hash(rank: int) -> bytes:
    """Equal for ranks that traced the same graph, as far as collectives depend on it."""
    token = _C.token(rank)
    if token is None:
        return b""  # only collectives that move nothing: of empty tensors, a send
    # The hash waits for the device with the interpreter lock held, which peers need to come.
    if not _C.ranks_idle(rank):
        _wait(rank)
    return _hash([token])


def _hash(tensors: list[torch.Tensor]) -> bytes:
    hashed: bytes = _originals.get("_get_graph_hash", XLAC._get_graph_hash)(tensors)
    return hashed


def _wait(rank: int) -> None:
    """Wait until the device of this rank has done all that was handed to it."""
    try:
        _originals["_xla_wait_device_ops"]([f"CPU:{rank}"])
    except Exception:
        # A program has failed. What is pending may need its results, the token among them, and
        # torch_xla crashes on results that never came.
        _C.ranks_lost(rank)
        drop(rank)
        raise


def drop(rank: int) -> None:
    """Throw away what a rank has pending: a later step shall not run it."""
    if _C.ranks_outlived():
        return  # what is pending on the device is another launch's
    with _C.rank_turn(rank):
        _C.ranks_drop(rank)
        _originals.get("_clear_pending_irs", XLAC._clear_pending_irs)(f"xla:{rank}")


def lose(rank: int | None) -> None:
    """Throw away the collectives that a rank has pending, after a failure, and what needs them.

    None: that of the default device, all of it."""
    if rank is None or _C.ranks_outlived() or not _ranks_meet:
        drop(default_rank() if rank is None else rank)
        return
    with _C.rank_turn(rank):
        if _C.token(rank) is None:
            _C.ranks_drop(rank)  # nothing of it is in the graph
            return
        lost: list[torch.Tensor] = []
        try:
            lost = salvage.pending(rank)
            if not _C.ranks_final(rank):  # else no rank goes on
                lost = salvage.save(lost, _originals["_xla_sync_multi"])
        finally:
            drop(rank)
        salvage.spoil(lost)


def _wait_device_ops(devices: list[str] | None = None) -> None:
    """`_XLAC._xla_wait_device_ops`, of the rank's own device: others may wait for this rank."""
    if _ranks_meet:
        _wait(_rank_of(""))
    else:
        _originals["_xla_wait_device_ops"](devices or [])


def _step_marker(
    device: str = "", devices: list[str] | None = None, wait: bool = True, reset_scope: bool = True
) -> None:
    """`_XLAC._xla_step_marker`, after meeting the other ranks. Raises RanksDisagree."""
    global _syncs
    _syncs += reset_scope
    with _around(_rank_of(device), reset_scope):
        _step(device, devices, wait, reset_scope)


def _step(device: str, devices: list[str] | None, wait: bool, reset_scope: bool) -> None:
    rank = _rank_of(device)
    if not _ranks_meet:

        def run() -> None:
            with _chain_ends(rank):
                _originals["_xla_step_marker"](device, devices or [], wait, reset_scope)

        if agreed := world.active():
            agreed.step(run)
        else:
            run()
        return
    _C.require_own_thread(rank)
    run = traced.as_rank(
        rank,
        _originals["_xla_step_marker"],
        device or f"xla:{rank}",
        devices or [],
        wait=False,
        reset_scope=reset_scope,
    )
    program_hash = functools.partial(_program_hash, rank)
    with _C.rank_turn(rank), compile_lock.opened(), traced.meets(rank):
        try:
            _C.ranks_meet(rank, program_hash, run, functools.partial(_wait, rank) if wait else None)
        except _C.RanksDisagree:
            lose(rank)
            raise


@contextlib.contextmanager
def _chain_ends(rank: int) -> Iterator[None]:
    """What is pending on a rank of a pod runs; its device runs programs in their order.

    So the next chain begins anew, unless another thread has gone on with this one.
    """
    before = _C.token(rank)
    _C.forget_dead_tensors()
    try:
        yield
    except BaseException:
        _C.ranks_drop(rank)
        raise
    chains.ended()
    if _C.token(rank) is before:
        _C.ranks_drop(rank)


def syncs() -> int:
    """How often this process has stepped by torch_xla.sync(), or its relatives."""
    return _syncs


def run_all(rank: int) -> None:
    """Run what is pending on a rank of a pod."""
    with _chain_ends(rank):
        _originals["_xla_sync_live_tensors"](f"xla:{rank}", [], wait=False)


def run_pending(rank: int, *read: torch.Tensor) -> list[torch.Tensor] | None:
    """Run all that is pending on a rank if there are collectives in it, and these tensors need any.

    Before it waits for others, and before one tensor of it is read. Reading runs the part of the
    graph that the tensor needs, and the rest of it again later: the collectives in both would
    happen twice on this rank and once on the others.

    Where ranks agree on what they run, what this returns, if anything, is to be read instead.
    """
    _C.require_not_outlived()
    with _around(rank, False, read):
        if _C.ranks_pending(rank):
            _step(f"xla:{rank}", None, wait=False, reset_scope=False)
        elif agreed := None if _ranks_meet else world.active():
            if read:
                return agreed.read(list(read))
            agreed.step(functools.partial(run_all, rank))
        elif not _ranks_meet and chains.is_pending(rank, read):
            run_all(rank)
    return None


def first_token(rank: int) -> torch.Tensor:
    """The start of a rank's chain of collectives (see docs/spec.md, Ordering).

    On a pod it is one for all: a chain ends with the program that it is in.
    """
    if runtime.device_type() != "POD":
        return chains.begun(rank)
    _hooks.install()
    return chains.first(rank)


def _before_read(rank: int, *tensors: torch.Tensor) -> list[torch.Tensor] | None:
    """Run what is pending, on the rank's own thread; others may not if it is in what they read.

    What this returns, if anything, is to be read instead.
    """
    if _C.ranks_may_issue(rank):
        return run_pending(rank, *tensors)
    _C.require_not_outlived()
    if _C.ranks_pending(rank) and any(XLAC._check_tensor_need_materialization(list(tensors))):
        _C.require_own_thread(rank)
    return None


def run_graph_of_this() -> None:
    """Run what is pending on the device of a rank that is a process."""
    XLAC._xla_step_marker(f"xla:{default_rank()}", [], wait=False, reset_scope=False)


def _clear_pending_irs(device: str) -> None:
    """`_XLAC._clear_pending_irs`, and the collectives in them."""
    rank = _rank_of(device)
    world.settle()  # torch.compile captures, on one rank perhaps
    with _C.rank_turn(rank):
        _C.ranks_drop(rank)
        _originals["_clear_pending_irs"](device)


def _get_graph_hash(tensors: list[torch.Tensor]) -> bytes:
    """`_XLAC._get_graph_hash`: of a graph that torch.compile captures, which it runs by this."""
    return captured.last(_hash(tensors))


def _warm_up_cache(tensors: list[torch.Tensor], devices: list[str]) -> None:
    """`_XLAC._xla_warm_up_cache`: torch.compile has captured a graph, which ends in `tensors`."""
    hashed = captured.taken()
    _originals["_xla_warm_up_cache"](tensors, devices)
    captured.compiled(hashed, tensors, _rank_of(""), _hash, ranks_meet=_ranks_meet)


def _run_cached_graph(program_hash: bytes, inputs: list[Any]) -> list[torch.Tensor]:
    """`_XLAC._run_cached_graph`, after meeting the other ranks as a step does."""
    rank = _rank_of("")
    _C.require_own_thread(rank)
    for x in inputs:
        if isinstance(x, torch.Tensor) and x.device.index != rank:
            raise RuntimeError(
                f"torch.compile: a graph that was captured on {x.device} is called by rank {rank}. "
                "Ranks on threads share what torch.compile makes of a function without tensor "
                "arguments. Give it a tensor of the rank's device as an argument"
            )
    read = xla_tensors_of((inputs,))
    has_collectives = getattr(program_hash, "has_collectives", False)
    if not _ranks_meet and (agreed := world.active()):
        if has_collectives:
            agreed.settle()
        replace(read, agreed.read(read))
    elif _ranks_meet or has_collectives:
        run_pending(rank)
    elif read:
        run_pending(rank, *read)
    program = getattr(program_hash, "program", None)
    if not program:
        found: list[torch.Tensor] = _originals["_run_cached_graph"](program_hash, inputs)
        return found
    results: list[torch.Tensor] = []

    def hashed() -> bytes:
        # What runs takes the lock of the device with that of the interpreter, which peers need.
        if not _C.ranks_idle(rank):
            _wait(rank)
        # Each rank runs its own: its inputs are its own, and there is nothing to compile.
        return program_hash + f" {rank}".encode()

    def run() -> None:
        results.extend(_originals["_run_cached_graph"](program_hash, inputs))

    with _C.rank_turn(rank), traced.meets(rank):
        try:
            _C.ranks_meet(rank, hashed, traced.as_rank(rank, run), None, program)
        except _C.RanksDisagree:
            lose(rank)
            raise
    return results


def _reader(name: str) -> Callable[..., Any]:
    def read(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (passed through)
        tensors = xla_tensors_of((*args, *kwargs.values()))
        if tensors:
            rank = int(tensors[0].device.index)
        else:  # all of a device
            rank = _rank_of(args[0] if args and isinstance(args[0], str) else "")
            _C.require_own_thread(rank)
        with _C.rank_turn(rank):
            if name == "_xla_sync_live_tensors" and not _ranks_meet and world.calls_pending():
                return None  # others may not want to run this, and who reads does what it needs
            replace(tensors, _before_read(rank, *tensors))
            return _originals[name](*args, **kwargs)

    return read


def begin() -> None:
    """Be there before the first collective, where the environment says that this is a pod.

    Elsewhere, and where a script says so later, `first_token` and `ranks_meet` come in time, but
    for a first collective in a loop.
    """
    if os.environ.get("PJRT_DEVICE") == "POD":
        _hooks.install()


def _make(changes: Changes) -> None:
    replacements: dict[str, Callable[..., Any]] = {name: _reader(name) for name in _READERS}
    replacements["_xla_step_marker"] = _step_marker
    replacements["_xla_wait_device_ops"] = _wait_device_ops
    replacements["_clear_pending_irs"] = _clear_pending_irs
    replacements["_get_graph_hash"] = _get_graph_hash
    replacements["_xla_warm_up_cache"] = _warm_up_cache
    replacements["_run_cached_graph"] = _run_cached_graph
    loops.put(changes, lambda: not _ranks_meet, default_rank, run_pending, run_all)
    for name in replacements:
        _originals[name] = getattr(XLAC, name)
    for name, function in replacements.items():
        changes.put(XLAC, name, chains.passing(function))
    _C.open_read_hooks(_before_read)
    changes.after(_C.close_read_hooks)


_hooks = Patches("torch_xla_cc", _make)


def stand() -> None:
    """Be there from now on."""
    _hooks.install()


@contextlib.contextmanager
def ranks_meet() -> Iterator[None]:
    """Around a launch of ranks that are threads: they meet before any of them runs a graph."""
    global _ranks_meet
    with _hooks.installed():
        _ranks_meet = True
        try:
            yield
        finally:
            _ranks_meet = False


@contextlib.contextmanager
def running(around: Around) -> Iterator[None]:
    """Whatever runs a graph on this thread, or reads of it, does so inside of `around`."""
    with _hooks.installed():
        before = _thread.around
        _thread.around = around
        try:
            yield
        finally:
            _thread.around = before


def default_rank() -> int:
    """The rank whose device is this thread's default."""
    return torch.device(XLAC._xla_get_default_device()).index or 0
