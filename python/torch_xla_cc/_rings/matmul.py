"""The two matmuls in steps, with gradients, each of which is the other one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_xla_cc import functions
from torch_xla_cc import xla_model as xm
from torch_xla_cc._ops.linear import of_one_tensor
from torch_xla_cc._ops.operators import compiling
from torch_xla_cc._ops.types import Groups
from torch_xla_cc._rings import steps
from torch_xla_cc._rings.steps import Ring, ring

Gradients = tuple[torch.Tensor | None, ...]


@of_one_tensor
def all_gather_matmul(
    value: torch.Tensor, weight: torch.Tensor, dim: int = 0, groups: Groups = None
) -> torch.Tensor:
    """`gather_from_sequence(value, dim, groups) @ weight`, in steps around a ring.

    While a block is multiplied the next one is on its way. When that pays: docs/overlap.md.

    Args:
      value: this rank's block of the sequence, of two or more dimensions; the last is contracted.
      weight: of two dimensions.
      dim: any dimension of `value` but the last.
      groups: lists of ranks, of one size, that hold every rank; None for all ranks together.
    """
    value, weight = _cast(value, weight)
    at = _dim("all_gather_matmul", value, weight, dim)
    around = ring("all_gather_matmul", groups)
    if around.ranks == 1:
        return value @ weight
    turns = around.turns(value.device)
    return _apply(_AllGatherMatmul, value, weight, turns, around, at, groups)


@of_one_tensor
def matmul_reduce_scatter(
    value: torch.Tensor, weight: torch.Tensor, dim: int = 0, groups: Groups = None
) -> torch.Tensor:
    """`reduce_scatter_to_sequence(value @ weight, dim, groups)`, in steps around a ring.

    While the sum for one rank is on its way the next one's part is multiplied. Sums travel, and are
    added, in the type of `value`.

    Args:
      value: of two or more dimensions; the last is contracted, and the size of `dim` is a multiple
        of the ranks of a group.
      weight: of two dimensions.
      dim: any dimension of `value` but the last.
      groups: lists of ranks, of one size, that hold every rank; None for all ranks together.
    """
    value, weight = _cast(value, weight)
    at = _dim("matmul_reduce_scatter", value, weight, dim)
    around = ring("matmul_reduce_scatter", groups)
    if around.ranks == 1:
        return value @ weight
    if value.shape[at] % around.ranks:
        raise ValueError(
            f"matmul_reduce_scatter: dimension {dim} has the size {value.shape[at]}, but it must "
            f"be a multiple of {around.ranks}, the ranks of the group. Pad it"
        )
    turns = around.turns(value.device)
    return _apply(_MatmulReduceScatter, value, weight, turns, around, at, groups)


def _cast(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """As autocast has the operands of a matmul."""
    if not torch.is_autocast_enabled("xla"):
        return tensors
    dtype = torch.get_autocast_dtype("xla")
    return tuple(
        one.to(dtype) if isinstance(one, torch.Tensor) and one.dtype.is_floating_point else one
        for one in tensors
    )


def _dim(op: str, value: torch.Tensor, weight: torch.Tensor, dim: int) -> int:
    """`dim` from the front. ValueError for what cannot be multiplied in blocks along it."""
    if not isinstance(weight, torch.Tensor):
        raise TypeError(f"{op}: weight is {type(weight).__name__}, but it must be a tensor")
    if type(dim) is not int:
        raise TypeError(f"{op}: dim = {dim!r}, but it must be an int")
    for name, tensor in (("value", value), ("weight", weight)):
        if tensor.device.type != "xla":
            raise ValueError(
                f"{op}: {name} is on {tensor.device}, but it must be on an XLA device. Move it "
                "there: .to(torch_xla.device())"
            )
    shapes = f"value of {list(value.shape)} and weight of {list(weight.shape)}"
    if value.dim() < 2 or weight.dim() != 2 or value.shape[-1] != weight.shape[0]:
        raise ValueError(
            f"{op}: {shapes}, but it must be [..., k] with two or more dimensions, and [k, m]. "
            "Transpose the weight of a torch.nn.Linear, or reshape"
        )
    if value.dtype != weight.dtype:
        raise ValueError(
            f"{op}: value is {value.dtype} and weight is {weight.dtype}, but they must be of one "
            "type. Convert one"
        )
    if not -value.dim() <= dim < value.dim() or dim % value.dim() == value.dim() - 1:
        raise ValueError(
            f"{op}: dim = {dim} with {shapes}, but it must be a dimension of value, and not its "
            "last, which is contracted. To split that one, split the rows of weight as well, and "
            "use reduce_from_region(value @ weight)"
        )
    return dim % value.dim()


def _apply(function: Any, *args: Any) -> torch.Tensor:  # noqa: ANN401 (of torch)
    result: torch.Tensor = function.apply(*args)
    return result


def _again() -> bool:
    """Whether gradients will be differentiated: then they are the plain form, which can be."""
    return torch.is_grad_enabled() and not compiling()


class _InSteps(torch.autograd.Function):
    """What both have in common: `others` are the ring, the dimension and the groups."""

    @staticmethod
    def save(ctx: Any, saved: tuple[torch.Tensor, ...], others: tuple[Any, ...]) -> None:  # noqa: ANN401 (torch has no name for it)
        ctx.save_for_backward(*saved)
        ctx.others = others

    @staticmethod
    def gradients(
        ctx: Any,  # noqa: ANN401
        in_steps: Callable[[Ring, torch.Tensor], torch.Tensor],
        plain: Callable[[], torch.Tensor],
        of_weight: Callable[[], torch.Tensor],
    ) -> Gradients:
        """Those of x and of the weight, where they are asked for."""
        needs_x, needs_weight, *_ = ctx.needs_input_grad
        if not needs_x:
            of_x = None
        elif _again():
            of_x = plain()
        else:
            of_x = in_steps(*ctx.others[0].back(ctx.saved_tensors[2]))
        return of_x, of_weight() if needs_weight else None, None, None, None, None


class _AllGatherMatmul(_InSteps):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        x: torch.Tensor,
        weight: torch.Tensor,
        turns: torch.Tensor,
        *others: Any,  # noqa: ANN401
    ) -> torch.Tensor:
        _InSteps.save(ctx, (x, weight, turns), others)
        of, dim, _ = others
        return steps.gathered(x, weight, of, turns, dim)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Gradients:  # noqa: ANN401
        x, weight, _ = ctx.saved_tensors
        _, dim, groups = ctx.others

        def plain() -> torch.Tensor:
            summed = gradient @ weight.mH
            return functions.reduce_scatter(xm.REDUCE_SUM, summed, scatter_dim=dim, groups=groups)

        # Compilers run the weight's beside the steps of the other gradient, which do not need it.
        # In steps of its own a sum of the weight's size would go through memory in each.
        return _InSteps.gradients(
            ctx,
            lambda of, turns: steps.scattered(gradient, weight.mH, of, turns, dim),
            plain,
            lambda: steps.contracted(functions.all_gather(x, dim, groups), gradient),
        )


class _MatmulReduceScatter(_InSteps):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        x: torch.Tensor,
        weight: torch.Tensor,
        turns: torch.Tensor,
        *others: Any,  # noqa: ANN401
    ) -> torch.Tensor:
        _InSteps.save(ctx, (x, weight, turns), others)
        of, dim, _ = others
        return steps.scattered(x, weight, of, turns, dim)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Gradients:  # noqa: ANN401
        x, weight, _ = ctx.saved_tensors
        _, dim, groups = ctx.others
        # For the weight's it is gathered once more, beside the steps: what has come in those is in
        # another order, and to put it in one costs a pass over memory, where the wire has time to
        # spare.
        return _InSteps.gradients(
            ctx,
            lambda of, turns: steps.gathered(gradient, weight.mH, of, turns, dim),
            lambda: functions.all_gather(gradient, dim, groups) @ weight.mH,
            lambda: steps.contracted(x, functions.all_gather(gradient, dim, groups)),
        )
