"""Our collectives in place of torch_xla's own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist
from torch_xla.core import xla_model as stock
from torch_xla.distributed import xla_backend

from torch_xla_cc import xla_model as ours

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

_lock = threading.RLock()
_replaced: dict[str, Callable[..., Any]] = {}
_replaced_backend: list[Any] = []  # torch.distributed's plugin "xla"
_replaced_functions: list[tuple[Any, str, Any]] = []  # of torch.distributed: module, name, function
_asked = False  # by install(), for good
_blocks = 0  # of installed() that are open


def _put_in_place() -> None:
    if _replaced:
        return
    for name in _NAMES:
        _replaced[name] = getattr(stock, name)
        setattr(stock, name, getattr(ours, name))
    from torch_xla_cc.distributed import BACKEND, _groups  # registers it

    plugins = dist.Backend._plugins
    _replaced_backend[:] = [plugins["XLA"]]
    plugins["XLA"] = plugins[BACKEND.upper()]
    # torch_xla replaces it by one that knows fewer arguments.
    _replace(dist, "new_group", xla_backend._orig_new_group_fn)
    for module, name, function in _groups.REPLACED:
        _replace(module, name, function)


def _replace(module: Any, name: str, function: Any) -> None:  # noqa: ANN401 (any function)
    _replaced_functions.append((module, name, getattr(module, name)))
    setattr(module, name, function)


def _put_back() -> None:
    for name, function in _replaced.items():
        setattr(stock, name, function)
    if _replaced:
        dist.Backend._plugins["XLA"] = _replaced_backend[0]
    for module, name, function in reversed(_replaced_functions):
        setattr(module, name, function)
    _replaced_functions.clear()
    _replaced.clear()


def install() -> None:
    """Make torch_xla.core.xla_model's collectives ours.

    What torch_xla builds on them (optimizer_step, reduce_gradients, XlaFullyShardedDataParallel,
    ZeroRedundancyOptimizer) then uses ours too. torch.distributed's backend "xla" becomes ours, and
    its new_group what it was before torch_xla replaced it, with names that all members of a group
    find; split_group and monitored_barrier take groups of ours. Functions that were imported by
    name before the call, and objects that took them at construction, keep what they took.
    """
    global _asked
    with _lock:
        _asked = True
        _put_in_place()


def uninstall() -> None:
    """Undo install, exactly."""
    global _asked
    with _lock:
        _asked = False
        _put_back()


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """install() for a block. It ends with the last block of all threads, or with uninstall()."""
    global _blocks
    with _lock:
        _blocks += 1
        _put_in_place()
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if _blocks == 0 and not _asked:
                _put_back()
