"""Linear functions of all ranks' tensors, for autograd."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

import torch

from torch_xla_cc import _C
from torch_xla_cc.xla_model import Groups

_P = ParamSpec("_P")
Move = Callable[[Any], Any]  # of a tensor, to a tensor


@dataclasses.dataclass(frozen=True)
class Linear:
    """A linear function of all ranks' tensors, and its adjoint."""

    forward: Move
    backward: Move

    def __call__(self, value: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = _Apply.apply(self, value)  # type: ignore[no-untyped-call]
        return result


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, linear: Linear, value: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
        ctx.linear = linear
        return linear.forward(value)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor]:  # noqa: ANN401
        return None, Linear(ctx.linear.backward, ctx.linear.forward)(gradient)


def of_one_tensor(function: Callable[_P, torch.Tensor]) -> Callable[_P, torch.Tensor]:
    """Refuses others, and lists, as `value`."""
    place = list(inspect.signature(function).parameters).index("value")

    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> torch.Tensor:
        value = args[place] if len(args) > place else kwargs.get("value")
        if not isinstance(value, torch.Tensor):
            raise TypeError(
                f"{function.__name__}: value is {type(value).__name__}, but it must be one tensor. "
                "Call it for each of a list"
            )
        return function(*args, **kwargs)

    return checked


def members(groups: Groups) -> list[list[int]]:
    """The groups, where "all" is written out."""
    if groups:
        return [list(group) for group in groups]
    _, world_size = _C.current_target()
    return [list(range(world_size))]
