"""Our collectives in place of torch_xla's own."""

from __future__ import annotations

import contextlib
import copy
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch_xla import runtime
from torch_xla.core import xla_model as stock
from torch_xla.distributed import xla_multiprocessing

from torch_xla_cc import xla_model as ours
from torch_xla_cc._runtime.patches import Changes, Patches
from torch_xla_cc._runtime.private import backend_plugins, pjrt, xla_backend
from torch_xla_cc._threads.launch import launch
from torch_xla_cc._threads.worlds import this_rank

_NAMES = (
    "all_gather",
    "all_gather_bucketized",
    "all_reduce",
    "all_to_all",
    "collective_broadcast",
    "collective_permute",
    "recv",
    "reduce_scatter",
    "reduce_scatter_bucketized",
    "send",
)


def _run_multiprocess(
    theirs: Callable[..., dict[int, Any]],
    fn: Callable[..., Any],
    *args: Any,  # noqa: ANN401 (the function's)
    start_method: str = "spawn",
    **options: Any,  # noqa: ANN401
) -> dict[int, Any]:
    """pjrt.run_multiprocess, which torch_xla.launch and xla_multiprocessing.spawn call."""
    if runtime.device_type() != "CPU":
        return theirs(fn, *args, start_method=start_method, **options)
    return dict(enumerate(launch(lambda _: fn(*args, **options))))


def _spawn_threads(
    theirs: Callable[..., None], fn: Callable[..., Any], args: Sequence[Any] = ()
) -> None:
    """pjrt.spawn_threads."""
    if runtime.device_type() != "CPU":
        theirs(fn, args)
    else:
        launch(fn, args)


def _run_singleprocess(
    theirs: Callable[..., Any],
    fn: Callable[..., Any],
    *args: Any,  # noqa: ANN401 (the function's)
    **options: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """pjrt._run_singleprocess, which they call for one process: a world of one."""
    if runtime.device_type() != "CPU":
        return theirs(fn, *args, **options)
    return launch(lambda _: fn(*args, **options), nprocs=1)[0]


class _Copies(threading.local):
    """The modules that a rank has of wrappers."""

    def __init__(self) -> None:
        self.of: weakref.WeakKeyDictionary[Any, torch.nn.Module] = weakref.WeakKeyDictionary()


_copies = _Copies()


def _to(
    theirs: Callable[..., torch.nn.Module],
    wrapper: xla_multiprocessing.MpModelWrapper,
    device: torch.device | str,
) -> torch.nn.Module:
    """xla_multiprocessing.MpModelWrapper.to: a rank that is a thread gets a module of its own."""
    if this_rank() is None:
        return theirs(wrapper, device)
    if wrapper not in _copies.of:
        _copies.of[wrapper] = copy.deepcopy(theirs(wrapper, "cpu"))
    return _copies.of[wrapper].to(device)


def _make(changes: Changes) -> None:
    for name in _NAMES:
        changes.put(stock, name, getattr(ours, name))
    changes.wrap(pjrt, "run_multiprocess", _run_multiprocess)
    changes.wrap(pjrt, "_run_singleprocess", _run_singleprocess)
    changes.wrap(pjrt, "spawn_threads", _spawn_threads)
    changes.wrap(xla_multiprocessing.MpModelWrapper, "to", _to)
    from torch_xla_cc.distributed import BACKEND, _groups  # registers it

    changes.item(backend_plugins, "XLA", backend_plugins[BACKEND.upper()])
    # torch_xla replaces it by one that knows fewer arguments.
    changes.put(dist, "new_group", xla_backend._orig_new_group_fn)
    for module, name, function in _groups.REPLACED:
        changes.put(module, name, function)


_patches = Patches("torch_xla_cc.install", _make)


def install() -> None:
    """Have torch_xla itself use the collectives of this package.

    torch_xla.core.xla_model's collectives become ours, and with them what torch_xla builds on them:
    optimizer_step, reduce_gradients, XlaFullyShardedDataParallel, ZeroRedundancyOptimizer.

    In torch.distributed the backend "xla" becomes ours, split_group and monitored_barrier take its
    groups, and new_group is what it was before torch_xla replaced it, with names that all members
    of a group find.

    On CPU torch_xla.launch, xla_multiprocessing.spawn and pjrt.spawn_threads start ranks as
    `torch_xla_cc.launch` does: as many as CPU_NUM_DEVICES says, or one with
    debug_single_process=True or nprocs=1. xla_multiprocessing.MpModelWrapper.to gives each of them
    a module of its own.

    Functions that were imported by name before the call, and objects that took them when they were
    made, keep what they took. `uninstall()` undoes it.
    """
    _patches.install()


def uninstall() -> None:
    """Undo install, exactly."""
    _patches.uninstall()


def installed() -> contextlib.AbstractContextManager[None]:
    """install() for a block. It ends with the last block of all threads, or with uninstall()."""
    return _patches.installed()
