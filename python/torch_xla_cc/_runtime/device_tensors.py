"""XLA tensors as the memory of the host, and back; called by the extension.

The functions of torch_xla are looked up when they are called: read hooks may stand before them.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch_xla
from torch.optim.optimizer import Optimizer
from torch.utils import dlpack
from torch_xla import runtime

from torch_xla_cc import _C
from torch_xla_cc._runtime.private import (
    XLAC,
    from_functional_tensor,
    functionalize_commit_update,
    functionalize_replace,
    is_functional_tensor,
)

# What torch has around the step of each optimizer.
_STEP = Optimizer.profile_hook_step(len).__code__


def become(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Have `tensor`, and views of it when they are next used, be `value`, which is no view.

    Its shape too, of a tensor that is no view itself.
    """
    if is_functional_tensor(value):
        value = from_functional_tensor(value)
    functionalize_replace(tensor, value)
    functionalize_commit_update(tensor)


_Hook = Callable[[torch.optim.Optimizer], None]


class _OneStep(threading.local):
    """What to call at the end of one_step(), with the last optimizer; None outside of it."""

    hooks: dict[_Hook, torch.optim.Optimizer] | None = None


_one_step = _OneStep()


def _is_step_of_another() -> bool:
    """Whether an optimizer steps inside of the step of another, as in ZeroRedundancyOptimizer."""
    steps = 0
    frame = sys._getframe()
    while frame is not None and steps < 2:
        steps += frame.f_code is _STEP
        frame = frame.f_back  # type: ignore[assignment]
    return steps > 1


def ends_a_step(optimizer: torch.optim.Optimizer, hook: _Hook) -> bool:
    """Whether its step is a step of the device: it changes XLA tensors, in no other's step.

    In one_step() it is not, and `hook` is called at the end of that.
    """
    if _is_step_of_another() or not has_xla_parameters(optimizer):
        return False
    if _one_step.hooks is None:
        return True
    _one_step.hooks[hook] = optimizer
    return False


@contextlib.contextmanager
def one_step() -> Iterator[None]:
    """Steps of optimizers in here are one step of the device, which ends with it."""
    if _one_step.hooks is not None:
        yield
        return
    hooks = _one_step.hooks = {}
    try:
        yield
    finally:
        _one_step.hooks = None
    for hook, optimizer in hooks.items():
        hook(optimizer)


def end_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """Run what is pending, if its parameters are XLA tensors. Once for steps in a step."""
    if ends_a_step(optimizer, end_step):
        torch_xla.sync()


def has_xla_parameters(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it changes XLA tensors."""
    tensors = (x for group in optimizer.param_groups for x in group["params"])
    return any(x.device.type == "xla" for x in tensors)


def xla_tensors_of(args: tuple[Any, ...]) -> list[torch.Tensor]:
    """Those among arguments that are on XLA devices."""
    each = (x for arg in args for x in (arg if isinstance(arg, (list, tuple)) else (arg,)))
    return [x for x in each if isinstance(x, torch.Tensor) and x.device.type == "xla"]


def replace(tensors: list[torch.Tensor], values: list[torch.Tensor] | None) -> None:
    """Have them be those, if there are any: as after they have run."""
    for x, value in zip(tensors, values or (), strict=False):
        if x is not value:
            XLAC._replace_xla_tensor(x, value)


def needs_run(tensor: torch.Tensor) -> bool:
    """Whether it is the result of something that has not run."""
    return bool(XLAC._check_tensor_need_materialization([tensor])[0])


def run(tensors: list[torch.Tensor]) -> None:
    """Run what these wait for, in a program of its own, which may be this rank's alone."""
    XLAC._xla_sync_multi(tensors, [], wait=False, sync_xla_data=True)


def run_live(index: int) -> None:
    """Run all that the tensors of a device wait for.

    Not a step: that changes the seed of random numbers, and other ranks may have nothing pending.
    """
    _C.forget_dead_tensors()  # which would be results of the program
    XLAC._xla_sync_live_tensors(f"xla:{index}", [], wait=False)


def of_host() -> bool:
    """Whether the memory of the device is that of the host."""
    return bool(runtime.device_type() == "CPU")


def to_dlpack(tensor: torch.Tensor) -> Any:  # noqa: ANN401 (a capsule)
    """The memory of a tensor, or a copy of it on the host, once it has been computed."""
    XLAC._xla_sync_multi([tensor], [], wait=True, sync_xla_data=True)
    if not of_host():
        return dlpack.to_dlpack(tensor.detach().cpu())  # type: ignore[attr-defined]
    return XLAC._to_dlpack(tensor)


def from_dlpack(capsule: Any) -> torch.Tensor:  # noqa: ANN401 (as above)
    """A tensor on the device, of the memory of the host that is in a capsule."""
    if not of_host():
        return dlpack.from_dlpack(capsule).to(torch_xla.device())
    tensor: torch.Tensor = XLAC._from_dlpack(capsule)
    return tensor
