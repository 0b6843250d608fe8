"""Linear functions of all ranks' tensors, for autograd."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any, ParamSpec

import torch

from torch_xla_cc import _C
from torch_xla_cc._ops.operators import compiling
from torch_xla_cc._ops.types import Groups
from torch_xla_cc._runtime.private import assume_constant_result

_P = ParamSpec("_P")
Move = Callable[..., Any]  # of a tensor and others, to a tensor


def linear(
    forward: Move, backward: Move, value: torch.Tensor, *others: torch.Tensor
) -> torch.Tensor:
    """`forward(value, *others)`, linear in all ranks' values, and its adjoint `backward`.

    Both get the `others`, and must find no tensors elsewhere: with sizes that are free,
    torch.compile confuses what a function takes from around it with the sizes.
    """
    result: torch.Tensor = _Linear.apply(forward, backward, value, *others)  # type: ignore[no-untyped-call]
    return result


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 (torch has no name for it)
        forward: Move,
        backward: Move,
        value: torch.Tensor,
        *others: torch.Tensor,
    ) -> torch.Tensor:
        ctx.moves = forward, backward
        ctx.save_for_backward(*others)
        return forward(value, *others)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ANN401
        forward, backward = ctx.moves
        others = ctx.saved_tensors
        if compiling():  # without a gradient of its own, which torch.compile has not
            found = backward(gradient, *others)
        else:
            found = linear(backward, forward, gradient, *others)
        return None, None, found, *(None for _ in others)


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
    """The groups, where "all" is written out, as plain numbers.

    torch.compile with dynamic=True has variables for numbers that it is given, and does not find
    them in lists.
    """
    if not groups:
        return [list(range(_world_size()))]
    return [[operator.index(rank) for rank in group] for group in groups]


def refuse_partitions(op: str) -> None:
    """Raise in a region of SPMD mode, for what asks which rank it is: all partitions are one."""
    kind, ranks = _target()
    if kind.startswith("spmd:"):
        raise ValueError(
            f"{op}: ranks are partitions here ({kind}), and run one program that does not say "
            "which of them it is. Use all_gather, all_reduce or reduce_scatter, and pass shard_map "
            f"their numbers, torch.arange({ranks}), as an argument that is cut"
        )


def _world_size() -> int:
    ranks: int = _target()[1]
    return ranks


@assume_constant_result  # type: ignore[untyped-decorator]
def _target() -> tuple[str, int]:
    return _C.current_target()


@assume_constant_result  # type: ignore[untyped-decorator]
def as_data(number: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """What differs between ranks, as a tensor of one element on the device.

    torch_xla makes constants of scalars, and torch.compile of what is made inside of a graph: ranks
    would then have no one program.
    """
    return torch.tensor([number]).to(dtype).to(device)
