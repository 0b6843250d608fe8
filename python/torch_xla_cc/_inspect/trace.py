"""The program of a function or of pending tensors, before a compiler has seen it."""

from __future__ import annotations

import dataclasses
import gc
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent import futures
from typing import Any, NoReturn, cast

import torch
import torch_xla

from torch_xla_cc._runtime.private import (
    from_functional_tensor,
    functionalize_commit_update,
    functionalize_replace,
    functionalize_sync,
    is_functional_tensor,
    is_traceable_wrapper_subclass,
    pytree,
)

from .. import _C
from .._hlo import proto, protobuf
from .._hlo.collectives import Finder, finder
from .._ops.call_modes import in_graph, on_paper
from .._ops.recording import Call, record
from .._ops.targets import lowering_for
from .._runtime import chains, stand_ins
from .._runtime.private import XLAC
from .._threads import read_hooks
from .lines import lines, of_users

_one_at_a_time = threading.Lock()  # whether instructions know their lines is of the process
_NOTHING_RUNS = (
    "inspect: the function reads a tensor, or runs a step, but it is traced only and nothing of it "
    "runs. Have it return its tensors, without .item(), .cpu(), print or torch_xla.sync()"
)


@dataclasses.dataclass(frozen=True)
class Traced:
    """A program as torch_xla would give it to the compiler of `target`."""

    name: str
    module: bytes  # a serialized HloModuleProto; empty if there is nothing to run
    calls: tuple[Call, ...]  # what was issued, if it was traced here
    target: str
    world: int
    read_at: str = ""  # file:line, where it ends so; else with the step

    def finder(self) -> Finder:
        """Of its collectives."""
        if not self.module:
            return Finder()
        return finder(proto.computations(protobuf.HloModuleProto.FromString(self.module)))


def of_tensors(tensors: Any) -> Traced:  # noqa: ANN401 (any structure of tensors)
    """What is pending for them."""
    name, world = _C.current_target()
    found = _xla_tensors(tensors)
    if not found:
        raise TypeError(
            f"inspect: {type(tensors).__name__} holds no XLA tensor. Pass a function, or XLA "
            "tensors in any structure"
        )
    return Traced("pending tensors", _module(found), (), name, world)


class Step:
    """What a step of a rank would run, given the tensors that live there."""

    def __init__(self, rank: int, living: list[torch.Tensor]) -> None:
        self._rank = rank
        grads = [x for one in _grads(living) for x in _plain(one)]
        pending = {XLAC._xla_get_tensor_id(x): x for x in (*living, *grads) if _is_pending(x)}
        self._tensors = [pending[number] for number in sorted(pending)]

    def traced(
        self, title: str, calls: tuple[Call, ...], target: str, world: int, read_at: str
    ) -> Traced:
        """The program of it."""
        return Traced(title, _module(self._tensors), calls, target, world, read_at)

    def drop(self) -> None:
        """Have nothing of it run, here or later."""
        read_hooks.drop(self._rank)
        _empty(self._tensors)


def _grads(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Of those that are leaves.

    Asked on another thread: this one may be in a kernel, as a read is, where torch cannot say what
    a view is of that was written to.
    """

    def look() -> list[torch.Tensor]:
        return [x.grad for x in tensors if x.is_leaf and x.grad is not None]

    with futures.ThreadPoolExecutor(1) as another:
        return another.submit(look).result()


def of_call(
    title: str, call: Callable[[], Any], target: str | None, world_size: int | None
) -> Traced:
    """What `call` traces for a target; XLA tensors are afterwards what they were before.

    Nothing of it runs, here or later.
    """
    if target is None:
        target, world_size = _C.current_target()
    torch_xla.sync()  # what is pending is no part of it
    with _one_at_a_time, lines(), record() as calls:
        traced = _traced(title, call, target, world_size)
    rank = read_hooks.default_rank()
    return dataclasses.replace(traced, calls=tuple(one for one in calls if one.rank == rank))


def _traced(title: str, call: Callable[[], Any], target: str, world_size: int | None) -> Traced:
    """`of_call`, but for the calls: this thread's rank traces."""
    rank = read_hooks.default_rank()
    before = _Before(rank)
    with (
        lowering_for(target, world_size),
        read_hooks.running(_refuse),
        # On a thread of autograd's a backward pass would be for another target.
        torch.autograd.set_multithreading_enabled(False),
        in_graph(),  # else calls of torch.distributed run what is pending
    ):
        name, world = _C.current_target()
        try:
            module = _program(call, before)
        finally:
            before.restore()
            kept = before.kept()
            _empty(kept)
    if kept and not on_paper():  # where nothing ever runs
        raise RuntimeError(
            f"inspect: {title} has kept {len(kept)} tensors that it made, such as one of shape "
            f"{list(kept[0].shape)}; nothing has run, so they hold nothing now. An optimizer makes "
            "its state in the first step: run a step before. Else have the function return them"
        )
    return Traced(title, module, (), name, world)


chains.APART.add(_traced.__code__)


def _refuse(*_: object) -> NoReturn:
    raise RuntimeError(_NOTHING_RUNS)


def _program(call: Callable[[], Any], before: _Before) -> bytes:
    results = call()
    return _module([*_xla_tensors(results), *before.changed()])


def _empty(tensors: list[torch.Tensor]) -> None:
    """Without what they had to compute, which is for another device; NaN where there is one."""
    for x in tensors:
        value = float("nan") if x.is_floating_point() or x.is_complex() else 0
        _hold(x, _inner(torch.full(x.shape, value, dtype=x.dtype, device=x.device)))


def _module(tensors: list[torch.Tensor]) -> bytes:
    unique = {id(x): x for x in tensors}
    if not unique:
        return b""
    return of_users(stand_ins.undone(XLAC._get_xla_tensors_hlo_proto(list(unique.values()))))


def _xla_tensors(structure: Any) -> list[torch.Tensor]:  # noqa: ANN401 (any structure)
    leaves = pytree.tree_leaves(structure)
    return [x for leaf in leaves if isinstance(leaf, torch.Tensor) for x in _plain(leaf)]


def _plain(x: torch.Tensor) -> list[torch.Tensor]:
    """The XLA tensors that it is made of: a DTensor, or what an asynchronous call gives, has others
    inside."""
    if is_traceable_wrapper_subclass(x):
        inside, _ = cast("Any", x).__tensor_flatten__()
        return [one for name in inside for one in _plain(getattr(x, name))]
    return [x] if x.device.type == "xla" else []


def _is_pending(x: torch.Tensor) -> bool:
    """Whether it has something to compute."""
    if is_traceable_wrapper_subclass(x):
        return False  # what is inside of it may be
    return "XLAData: None" in XLAC._get_xla_tensor_debug_info(x)


class _Held:
    """A tensor, and what it holds."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x
        self.grad = x.grad if x.is_leaf else None
        self.is_wrapper = is_traceable_wrapper_subclass(x)  # what is inside is held by itself
        self.inner = x if self.is_wrapper else _inner(x)
        self.was_pending = _is_pending(x)
        # copy_ writes into what is inside, other functions replace it.
        self.value = x if self.is_wrapper else _inner(self.inner.clone())

    @property
    def changed(self) -> bool:
        """Whether it has been written to since."""
        return not self.is_wrapper and (_inner(self.x) is not self.inner or self._written)

    @property
    def _written(self) -> bool:
        return _is_pending(self.inner) and not self.was_pending

    def restore(self) -> None:
        """Have it hold that again."""
        if self.changed:
            _hold(self.x, self.value if self._written else self.inner)
        if self.x.is_leaf and self.x.grad is not self.grad:
            self.x.grad = self.grad


class _Before:
    """The tensors of a rank, and what they hold: a step writes to some of them."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._held = [_Held(x) for x in living(rank)[rank]]

    def changed(self) -> list[torch.Tensor]:
        """What a call has written to, and gradients that it has made."""
        found = [one.x for one in self._held if one.changed]
        for one in self._held:
            grad = one.x.grad if one.x.is_leaf else None
            if grad is not None and grad is not one.grad:
                found += _plain(grad)
        return found

    def kept(self) -> list[torch.Tensor]:
        """What is there now, was not before, and was to be computed."""
        gc.collect()
        known = {id(x) for one in self._held for x in (one.x, one.inner, one.value)}
        new = [x for x in living(self._rank)[self._rank] if id(x) not in known]
        return [x for x in new if _is_pending(x)]

    def restore(self) -> None:
        """Give all back what they held."""
        for one in self._held:
            one.restore()


def _inner(x: torch.Tensor) -> torch.Tensor:
    """What a tensor that keeps track of its views holds now."""
    return from_functional_tensor(x) if is_functional_tensor(x) else x


def _hold(x: torch.Tensor, inner: torch.Tensor) -> None:
    """Have it hold that now."""
    if is_functional_tensor(x):
        functionalize_replace(x, inner)
        functionalize_commit_update(x)
        functionalize_sync(x)


def living(rank: int | None = None) -> dict[int, list[torch.Tensor]]:
    """The XLA tensors of this process, by rank: of one, or of all while none of them runs.

    What another thread is running has for a moment no data of any kind.
    """
    found: dict[int, list[torch.Tensor]] = defaultdict(list)
    for x in _C.living_tensors():
        device = x.device
        if device.type != "xla" or rank not in (None, device.index):
            continue
        if is_traceable_wrapper_subclass(x) or _has_data(x):
            found[device.index].append(x)
    return found


def _has_data(x: torch.Tensor) -> bool:
    """Whether it is of torch_xla: what torch.compile traces with says the same device."""
    return "XLATensor {" in XLAC._get_xla_tensor_debug_info(x)
