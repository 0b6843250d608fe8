"""Functions of torch.nn.functional, for DTensors on XLA devices.

- torch_xla takes layer_norm apart above the place where DTensor sees operators, and reshapes that
  DTensor refuses are among the parts.
- It takes scaled_dot_product_attention apart too, where heads that are sharded meet a reshape.
- An operator of a DTensor and an XLA tensor goes to functionalization before DTensor sees it, and
  is refused (`_refuse_mixed` in dtensor.py). cross_entropy is one, if its target is no DTensor;
  and so is the backward of loss_parallel, where the total of the weights is none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.parallel.loss import customized_loss_ops

from torch_xla_cc._runtime.private import math_ops

_layer_norm = nn.functional.layer_norm
_cross_entropy = nn.functional.cross_entropy
_attention = nn.functional.scaled_dot_product_attention


@functools.wraps(_layer_norm)
def layer_norm(
    input: torch.Tensor | DTensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    shape = list(normalized_shape)
    if not isinstance(input, DTensor) or input.device_mesh.device_type != "xla":
        return _layer_norm(input, shape, weight, bias, eps)
    mesh, first = input.device_mesh, input.ndim - len(shape)
    placements: list[Placement] = [
        placement if isinstance(placement, Shard) and placement.dim < first else Replicate()
        for placement in input.placements
    ]
    # Each rank has the gradient of what it normalizes.
    parts = [Partial() if isinstance(placement, Shard) else Replicate() for placement in placements]

    def local(parameter: torch.Tensor | None) -> torch.Tensor | None:
        if not isinstance(parameter, DTensor):
            return parameter
        return parameter.redistribute(placements=[Replicate()] * mesh.ndim).to_local(
            grad_placements=parts
        )

    x = input.redistribute(placements=placements).to_local()
    of_rank = local(weight), local(bias)
    if x.numel() == 0:  # torch_xla's has no gradient
        y = sum((one for one in of_rank if one is not None), start=x * 1)
    else:
        y = _layer_norm(x, shape, *of_rank, eps)
    return DTensor.from_local(y, mesh, placements, shape=input.shape, stride=input.stride())


def _as_dtensor(x: torch.Tensor, like: DTensor, placements: Sequence[Placement]) -> DTensor:
    if isinstance(x, DTensor):
        return x
    return DTensor.from_local(x, like.device_mesh, placements, run_check=False)


@functools.wraps(_cross_entropy)
def cross_entropy(
    input: torch.Tensor | DTensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    *args: Any,  # noqa: ANN401 (torch's own)
    **kwargs: Any,  # noqa: ANN401
) -> torch.Tensor:
    if isinstance(input, DTensor) and input.device_mesh.device_type == "xla":
        # As torch reads a tensor there: what this rank has.
        classes = 1 if input.ndim >= 2 else 0
        like_input = math_ops._skip_dim(
            math_ops.replicate_reduction_dims(input.placements, [classes]), classes
        )
        target = _as_dtensor(target, input, like_input)
        if weight is not None:
            weight = _as_dtensor(weight, input, [Replicate()] * input.device_mesh.ndim)
    return _cross_entropy(input, target, weight, *args, **kwargs)


def _is_apart(x: DTensor, ranks: int, placement: Placement) -> bool:
    if isinstance(placement, Shard):
        return placement.dim < x.ndim - 2 and x.shape[placement.dim] % ranks == 0
    return placement.is_replicate()


@functools.wraps(_attention)
def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    *args: Any,  # noqa: ANN401 (torch's own)
    **kwargs: Any,  # noqa: ANN401
) -> torch.Tensor:
    if isinstance(query, DTensor) and query.device_mesh.device_type == "xla":
        placements = query.placements
        # Of batches and heads each rank has as many: what it does with them is its own.
        apart = all(
            isinstance(x, DTensor)
            and x.placements == placements
            and x.device_mesh == query.device_mesh
            and all(
                _is_apart(x, size, p)
                for size, p in zip(x.device_mesh.shape, placements, strict=True)
            )
            for x in (query, key, value)
        )
        if apart and attn_mask is None and dropout_p == 0.0:
            own = [cast("DTensor", x).to_local() for x in (query, key, value)]
            y = _attention(own[0], own[1], own[2], None, 0.0, *args, **kwargs)
            shape = torch.Size((*query.shape[:-1], value.shape[-1]))
            stride = torch.empty(shape, device="meta").stride()
            return DTensor.from_local(y, query.device_mesh, placements, shape=shape, stride=stride)
    return _attention(query, key, value, attn_mask, dropout_p, *args, **kwargs)


# Name in torch.nn.functional: torch's, ours.
REPLACED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "layer_norm": (_layer_norm, layer_norm),
    "cross_entropy": (_cross_entropy, cross_entropy),
    "scaled_dot_product_attention": (_attention, attention),
}


def _forward(handler: Callable[..., Any]) -> Callable[..., Any]:
    def nll_loss_forward(op: object, args: tuple[Any, ...], kwargs: dict[str, object]) -> object:
        loss, total = handler(op, args, kwargs)
        return loss, _as_dtensor(total, loss, [Replicate()] * loss.device_mesh.ndim)

    return nll_loss_forward


def _backward(handler: Callable[..., Any]) -> Callable[..., Any]:
    def nll_loss_backward(op: object, args: tuple[Any, ...], kwargs: dict[str, object]) -> object:
        *others, total = args
        total = total.to_local() if isinstance(total, DTensor) else total
        return handler(op, (*others, total), kwargs)

    return nll_loss_backward


# Operator in torch's table of those of loss_parallel: torch's, ours.
LOSS_OPERATORS: dict[Any, tuple[Callable[..., Any], Callable[..., Any]]] = {
    operator: (customized_loss_ops[operator], wrap(customized_loss_ops[operator]))
    for wrap, operators in {
        _forward: (
            torch.ops.aten.nll_loss_forward.default,
            torch.ops.aten.nll_loss2d_forward.default,
        ),
        _backward: (
            torch.ops.aten.nll_loss_backward.default,
            torch.ops.aten.nll_loss2d_backward.default,
        ),
    }.items()
    for operator in operators
}
