"""Our collectives in place of torch_xla's own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch_xla.core import xla_model as stock

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

_replaced: dict[str, Callable[..., Any]] = {}


def install() -> None:
    """Make torch_xla.core.xla_model's collectives ours.

    What torch_xla builds on them (optimizer_step, reduce_gradients, XlaFullyShardedDataParallel,
    ZeroRedundancyOptimizer) then uses ours too. Functions that were imported by name before the
    call, and objects that took them at construction, keep what they took.
    """
    if _replaced:
        return
    for name in _NAMES:
        _replaced[name] = getattr(stock, name)
        setattr(stock, name, getattr(ours, name))


def uninstall() -> None:
    """Undo install, exactly."""
    for name, function in _replaced.items():
        setattr(stock, name, function)
    _replaced.clear()


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """install() for a block. Inside a block or after install() it changes nothing."""
    if _replaced:
        yield
        return
    install()
    try:
        yield
    finally:
        uninstall()
