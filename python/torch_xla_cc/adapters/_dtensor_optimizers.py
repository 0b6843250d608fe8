"""Steps of torch.optim, carried out on what this rank has of each DTensor.

These do the same to each element, so they need no operator of DTensor, of which each takes many
times as long to trace as that of its local tensor. What runs is the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch.distributed.tensor import DTensor

# Not muon's and adafactor's, which look at rows or at all of a parameter.
_NAMES = (
    *("adadelta", "adagrad", "adam", "adamax", "asgd"),
    *("nadam", "radam", "rmsprop", "rprop", "sgd"),
)


def functions() -> list[tuple[ModuleType, str]]:
    """Where torch.optim's classes look for what steps their lists of tensors."""
    return [(sys.modules[f"torch.optim.{name}"], name) for name in _NAMES]


def step(
    theirs: Callable[..., None],
    params: list[torch.Tensor],
    *args: Any,  # noqa: ANN401 (as in torch)
    **options: Any,  # noqa: ANN401
) -> None:
    """One of those functions. All that are lists have something for each parameter."""
    lists = [one for one in args if isinstance(one, list)]
    others = [*options.values(), *(one for one in args if not isinstance(one, list))]
    if options.get("differentiable") or not _is_of_parts(params, lists, others):
        theirs(params, *args, **options)
        return
    own = [[_local(x) for x in one] for one in lists]
    given = [list(one) for one in own]
    left = iter(given)
    theirs(
        [_local(x) for x in params],
        *(next(left) if isinstance(one, list) else one for one in args),
        **options,
    )
    torch.autograd.graph.increment_version([x for x in params if isinstance(x, DTensor)])
    for whole, before, after in zip(lists, own, given, strict=True):
        for i, x in enumerate(after):
            if x is not before[i]:  # SGD's first momentum
                whole[i] = _whole(x, params[i])


def _is_of_parts(params: list[Any], lists: list[list[Any]], others: list[Any]) -> bool:
    """Whether there are DTensors, and all that belongs to one has the same part of the same."""
    if not any(isinstance(param, DTensor) for param in params):
        return False
    if any(isinstance(one, (DTensor, list)) for one in others):
        return False
    return all(
        len(each) in (0, len(params)) and all(map(_is_alike, params, each)) for each in lists
    )


def _is_alike(param: torch.Tensor, x: torch.Tensor | None) -> bool:
    if x is None or (x.dim() == 0 and not isinstance(x, DTensor)):  # a number of steps
        return True
    if not isinstance(param, DTensor) or not isinstance(x, DTensor):
        return not isinstance(param, DTensor) and not isinstance(x, DTensor)
    return (
        x.placements == param.placements
        and x.device_mesh == param.device_mesh
        and x.shape == param.shape
        and not any(placement.is_partial() for placement in x.placements)
    )


def _local(x: Any) -> Any:  # noqa: ANN401 (a tensor, or None)
    return x._local_tensor if isinstance(x, DTensor) else x


def _whole(x: Any, param: torch.Tensor) -> Any:  # noqa: ANN401
    """A DTensor of this part, as the parameter is one."""
    if not isinstance(param, DTensor) or not isinstance(x, torch.Tensor) or x.dim() != param.dim():
        return x
    return DTensor.from_local(
        x,
        param.device_mesh,
        param.placements,
        run_check=False,
        shape=param.shape,
        stride=param.stride(),
    )
