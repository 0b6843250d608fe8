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
from torch.distributed.tensor import DTensor, Replicate, Shard

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
    grads: list[torch.Tensor],
    *args: Any,  # noqa: ANN401 (as in torch)
    **options: Any,  # noqa: ANN401
) -> None:
    """One of those functions. All lists but the options have something for each parameter."""
    others = [*options.values(), *(one for one in args if not isinstance(one, list))]
    is_simple = not any(isinstance(one, (DTensor, list)) for one in others)
    is_dtensor = [isinstance(x, DTensor) for x in params]
    if not is_simple or not any(is_dtensor) or _needs_operators(params):
        theirs(params, grads, *args, **options)
        return
    grads = [*map(_as_its_parameter, params, grads)]
    lists = [one for one in args if isinstance(one, list) and len(one) == len(params)]
    is_part = [*map(_is_of_part, params, grads, *lists)]
    of_lists = options.get("foreach") or options.get("fused") or any(one is True for one in args)
    if is_part != is_dtensor and of_lists:  # whose operators take no others beside DTensors
        is_part = [False] * len(params)

    def own(each: list[Any]) -> list[Any]:
        return [_local(x) if part else x for x, part in zip(each, is_part, strict=True)]

    taken = {id(one): own(one) for one in lists}
    given = {key: list(one) for key, one in taken.items()}
    try:
        theirs(own(params), own(grads), *(given.get(id(one), one) for one in args), **options)
    finally:
        written = [x for x, part in zip(params, is_part, strict=True) if part]
        torch.autograd.graph.increment_version(written)
    for one in lists:
        for i, (before, x) in enumerate(zip(taken[id(one)], given[id(one)], strict=True)):
            if x is before:
                continue
            # SGD's first momentum, where there was none; or a new number.
            is_whole = is_part[i] and (before is None or isinstance(one[i], DTensor))
            one[i] = _whole(x, params[i]) if is_whole else x


def _needs_operators(params: list[torch.Tensor]) -> bool:
    """Whether autograd, or torch.compile, is to see what is done: they know of no local tensors."""
    if torch.compiler.is_compiling():
        return True
    return torch.is_grad_enabled() and any(x.requires_grad for x in params)


def _as_its_parameter(param: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """A gradient, which may be a sum that is yet to be made, or whole: here once, for all of it."""
    if not isinstance(grad, DTensor) or not isinstance(param, DTensor):
        return grad
    if grad.device_mesh != param.device_mesh or grad.placements == param.placements:
        return grad
    if not all(type(placement) in (Replicate, Shard) for placement in param.placements):
        return grad  # a subclass, into which torch may not be able to bring it
    return grad.redistribute(placements=param.placements)


def _is_of_part(param: torch.Tensor, *others: torch.Tensor | None) -> bool:
    """Whether it is a DTensor, and what belongs to it is of the same part."""
    return isinstance(param, DTensor) and all(_is_alike(param, x) for x in others)


def _is_alike(param: DTensor, x: torch.Tensor | None) -> bool:
    if not isinstance(x, DTensor):
        return x is None or x.dim() == 0  # a number of steps
    return (
        x.placements == param.placements
        and x.device_mesh == param.device_mesh
        and x.shape == param.shape
        and not any(placement.is_partial() for placement in x.placements)
    )


def _local(x: Any) -> Any:  # noqa: ANN401 (a tensor, or None)
    return x._local_tensor if isinstance(x, DTensor) else x


def _whole(x: torch.Tensor, param: torch.Tensor) -> DTensor:
    """A DTensor of this part, as the parameter is one, and on the device of the part."""
    return DTensor(x, param._spec, requires_grad=False)  # type: ignore[attr-defined]
