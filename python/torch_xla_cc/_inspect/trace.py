"""The program of a function or of pending tensors, before a compiler has seen it."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch_xla
from torch.utils import _pytree

from .. import _C, _door
from .._recording import Call, record
from .._runtime import XLAC
from .._targets import lowering_for

_NOTHING_RUNS = (
    "inspect: the function reads a tensor, or runs a step, but it is traced only and nothing of it "
    "runs. Have it return its tensors, without .item(), .cpu(), print or torch_xla.sync()"
)


@dataclass(frozen=True)
class Traced:
    """A program as torch_xla would give it to the compiler of `target`."""

    name: str
    module: bytes  # a serialized HloModuleProto; empty if there is nothing to run
    calls: tuple[Call, ...]  # what was issued, if it was traced here
    target: str
    world: int


def of_tensors(tensors: Any) -> Traced:  # noqa: ANN401 (any structure of tensors)
    """What is pending for them."""
    name, world = _C.current_target()
    return Traced("pending tensors", _module(_xla_tensors(tensors)), (), name, world)


def of_call(
    title: str, call: Callable[[], Any], target: str | None, world_size: int | None
) -> Traced:
    """What `call` traces for a target; XLA tensors are afterwards what they were before.

    Nothing of it runs, here or later.
    """
    if target is None:
        target, world_size = _C.current_target()
    torch_xla.sync()  # what is pending is no part of it
    before = _Before()
    with (
        lowering_for(target, world_size),
        _lines(),
        record() as calls,
        _door.nothing_runs(_NOTHING_RUNS),
        # On a thread of autograd's a backward pass would be for another target.
        torch.autograd.set_multithreading_enabled(False),
    ):
        name, world = _C.current_target()
        try:
            results = call()
            module = _module([*_xla_tensors(results), *before.changed()])
        finally:
            before.restore()
    return Traced(title, module, tuple(calls), name, world)


@contextlib.contextmanager
def _lines() -> Iterator[None]:
    """Instructions know the line that issued them."""
    before = _C.debug()
    _C.set_debug(True)
    try:
        yield
    finally:
        _C.set_debug(before)


def _module(tensors: list[torch.Tensor]) -> bytes:
    unique = {id(x): x for x in tensors}
    if not unique:
        return b""
    return bytes(XLAC._get_xla_tensors_hlo_proto(list(unique.values())))


def _xla_tensors(structure: Any) -> list[torch.Tensor]:  # noqa: ANN401 (any structure)
    leaves = _pytree.tree_leaves(structure)
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.device.type == "xla"]


class _Before:
    """The XLA tensors of this process, and what they hold: a step writes to some of them."""

    def __init__(self) -> None:
        self._held = [(x, _inner(x), x.grad if x.is_leaf else None) for x in _living()]

    def changed(self) -> list[torch.Tensor]:
        """What a call has written to, and gradients that it has made."""
        found = []
        for x, inner, grad in self._held:
            if _inner(x) is not inner:
                found.append(x)
            if x.is_leaf and x.grad is not None and x.grad is not grad:
                found.append(x.grad)
        return found

    def restore(self) -> None:
        """Give all back what they held."""
        for x, inner, grad in self._held:
            if _inner(x) is not inner:
                torch._functionalize_replace(x, inner)
                torch._functionalize_commit_update(x)
                torch._functionalize_sync(x)
            if x.is_leaf and x.grad is not grad:
                x.grad = grad


def _inner(x: torch.Tensor) -> torch.Tensor:
    """What a tensor that keeps track of its views holds now."""
    return torch._from_functional_tensor(x) if torch._is_functional_tensor(x) else x


def _living() -> list[torch.Tensor]:
    # type() and not isinstance(): some objects answer the latter by importing what they stand for.
    tensors = [x for x in gc.get_objects() if issubclass(type(x), torch.Tensor)]
    return [x for x in tensors if x.device.type == "xla"]
