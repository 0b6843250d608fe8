"""clamp of DTensors on XLA devices, with a gradient.

PyTorch's formula makes a tensor of zero on the device, and calls `where` below the place where an
adapter could see it: an operator of a DTensor and an XLA tensor, which is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from torch_xla_cc._runtime.patches import Changes

_Limit = Any  # a number, none, or a tensor


class _Clamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, low: _Limit, high: _Limit) -> torch.Tensor:  # noqa: ANN401
        ctx.save_for_backward(x)
        ctx.limits = low, high
        clamped: torch.Tensor = torch.ops.aten.clamp.default(x, low, high)
        return clamped

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # noqa: ANN401
        (x,), (low, high) = ctx.saved_tensors, ctx.limits
        if low is not None:
            gradient = torch.where(x >= low, gradient, 0.0)
        if high is not None:
            gradient = torch.where(x <= high, gradient, 0.0)
        return gradient, None, None


def _is_ours(x: object, low: _Limit, high: _Limit) -> bool:
    if not isinstance(x, DTensor) or not x.requires_grad or x.device_mesh.device_type != "xla":
        return False
    numbers = [one for one in (low, high) if one is not None]
    return bool(numbers) and all(isinstance(one, (int, float)) for one in numbers)


def _both(
    theirs: Callable[..., Any],
    x: torch.Tensor,
    min: _Limit = None,
    max: _Limit = None,
    **out: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    if out or not _is_ours(x, min, max):
        return theirs(x, min, max, **out)
    return _Clamp.apply(x, min, max)  # type: ignore[no-untyped-call]


def _below(theirs: Callable[..., Any], x: torch.Tensor, min: _Limit, **out: Any) -> Any:  # noqa: ANN401
    if out or not _is_ours(x, min, None):
        return theirs(x, min, **out)
    return _Clamp.apply(x, min, None)  # type: ignore[no-untyped-call]


def _above(theirs: Callable[..., Any], x: torch.Tensor, max: _Limit, **out: Any) -> Any:  # noqa: ANN401
    if out or not _is_ours(x, None, max):
        return theirs(x, max, **out)
    return _Clamp.apply(x, None, max)  # type: ignore[no-untyped-call]


_OURS: dict[str, Callable[..., Any]] = {
    "clamp": _both,
    "clip": _both,
    "clamp_min": _below,
    "clamp_max": _above,
}


def put(changes: Changes) -> None:
    """As methods of DTensors. The functions are those of all tensors, and stay."""
    for name, ours in _OURS.items():
        changes.wrap(DTensor, name, ours)
