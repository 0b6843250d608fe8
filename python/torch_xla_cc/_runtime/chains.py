"""Chains of a rank's collectives, by tokens (docs/spec.md, Ordering)."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import torch

from torch_xla_cc import _C
from torch_xla_cc._runtime.private import XLAC, bridge

_calls_apart = 0
_ends = 0
_OURS = "xla_cc::"  # in the names of what our calls make in a graph
_KEPT = 4096  # graphs
_graph_hash = XLAC._get_graph_hash  # as it is before read hooks stand before it
_known: dict[bytes, bool] = {}  # by the hash of a graph: whether one is in it


# Functions inside of which a graph is traced that is not to be run with what is pending.
APART: set[CodeType] = {
    bridge.extract_graph_helper.__code__,
    bridge.partition_fx_graph_for_cpu_fallback.__code__,
}


def begun(rank: int) -> torch.Tensor:
    """The start of one.

    Data from the host, so that the first step's program has it as a parameter as all later ones do.
    """
    return torch.zeros(1, dtype=torch.int32).to(torch.device("xla", rank))


first = functools.cache(begun)  # of all on a pod, where one ends with the program that it is in


def passing(function: Callable[..., Any]) -> Callable[..., Any]:
    """It, when no other thread runs what this one has in its graph (_threads/progress.py)."""

    def passed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (passed through)
        _C.op_gate_pass()
        return function(*args, **kwargs)

    return passed


def ended() -> None:
    """What a chain has runs."""
    global _ends
    _ends += 1


def ends() -> int:
    """How many have."""
    return _ends


def calls_apart() -> int:
    """How often there were any inside of `apart`."""
    return _calls_apart


@contextlib.contextmanager
def apart(rank: int) -> Iterator[None]:
    """Calls inside have one of their own, whose start is no data but an instruction.

    They are traced for a computation of its own, which takes nothing else in.
    """
    global _calls_apart
    start = torch.zeros(1, dtype=torch.int32, device=torch.device("xla", rank))
    with beginning(rank, start):
        try:
            yield
        finally:
            _calls_apart += _C.token(rank) is not start


@contextlib.contextmanager
def beginning(rank: int, start: torch.Tensor) -> Iterator[None]:
    """Calls inside have one of their own, and are none of the rank's pending calls."""
    before = _C.token(rank)
    _C.set_token(rank, start)
    _C.noted_calls.pause()
    try:
        yield
    finally:
        _C.noted_calls.resume()
        if before is None:
            _C.ranks_drop(rank)
        else:
            _C.set_token(rank, before)


def is_pending(rank: int, tensors: tuple[torch.Tensor, ...]) -> bool:
    """Whether collectives are pending, and these tensors, if there are any, need one: of a pod.

    Else a rank may read alone, as on TPU.
    """
    token = _C.token(rank)
    if token is None:
        return False
    try:
        *pending, chained = XLAC._check_tensor_need_materialization([*tensors, token])
    except RuntimeError:
        return False  # another thread is just running it
    needed = [x for x, needs in zip(tensors, pending, strict=True) if needs]
    return chained and (not tensors or (bool(needed) and is_in(needed)))


def is_in(tensors: list[torch.Tensor]) -> bool:
    """Whether there is a collective of ours in what these wait for."""
    key = bytes(_graph_hash(tensors))
    if key not in _known:
        if len(_known) >= _KEPT:
            _known.clear()
        _known[key] = _OURS in XLAC._get_xla_tensors_text(tensors)  # 0.2 s of a small GPT
    return _known[key]
