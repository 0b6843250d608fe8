"""Megatron's conventions for parallel regions.

A loss that every rank of a group computes alike counts once there. So these functions are not the
adjoints of the collectives that they run forward. They come in pairs, of which one does backward
what the other does forward:

    copy_to_region               identity            backward: all_reduce
    reduce_from_region           all_reduce          backward: identity
    scatter_to_region            the rank's block    backward: all_gather
    gather_from_region           all_gather          backward: the rank's block
    gather_from_sequence         all_gather          backward: reduce_scatter
    reduce_scatter_to_sequence   reduce_scatter      backward: all_gather

Functions that cut a tensor, or put it together again, need groups of one size that hold every rank,
since blocks have one shape on all of them.

`all_gather_matmul` and `matmul_reduce_scatter` are the last two with a matmul, in steps that hide
the collective.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_xla_cc import functions
from torch_xla_cc import xla_model as xm
from torch_xla_cc._ops.linear import as_data, linear, members, of_one_tensor, refuse_partitions
from torch_xla_cc._ops.types import Groups
from torch_xla_cc._ops.uneven import own_rank
from torch_xla_cc._rings.matmul import all_gather_matmul, matmul_reduce_scatter
from torch_xla_cc._runtime.show import show

__all__ = [
    "all_gather_matmul",
    "copy_to_region",
    "gather_from_region",
    "gather_from_sequence",
    "matmul_reduce_scatter",
    "own_block",
    "reduce_from_region",
    "reduce_scatter_to_sequence",
    "scatter_to_region",
]


@of_one_tensor
def copy_to_region(value: torch.Tensor, groups: Groups = None) -> torch.Tensor:
    """The tensor itself; its gradient is summed over the group."""
    return linear(lambda x: x.view_as(x), lambda g: _sum(g, groups), value)


@of_one_tensor
def reduce_from_region(value: torch.Tensor, groups: Groups = None) -> torch.Tensor:
    """The sum over the group; its gradient, which all ranks have already, is passed on."""
    return linear(lambda x: _sum(x, groups), lambda g: g.view_as(g), value)


@of_one_tensor
def scatter_to_region(value: torch.Tensor, dim: int = -1, groups: Groups = None) -> torch.Tensor:
    """This rank's block of a tensor that all ranks of the group have."""
    _require_alike("scatter_to_region", groups)
    return linear(
        lambda x, place: _block("scatter_to_region", x, dim, groups, place),
        lambda g, _: xm.all_gather(g, dim, groups),
        value,
        _place(value, groups),
    )


@of_one_tensor
def gather_from_region(value: torch.Tensor, dim: int = -1, groups: Groups = None) -> torch.Tensor:
    """The blocks of all ranks of the group, concatenated; backward, this rank's block."""
    _require_alike("gather_from_region", groups)
    return linear(
        lambda x, _: xm.all_gather(x, dim, groups),
        lambda g, place: _block("gather_from_region", g, dim, groups, place),
        value,
        _place(value, groups),
    )


def gather_from_sequence(value: torch.Tensor, dim: int = 0, groups: Groups = None) -> torch.Tensor:
    """The sequence, of which each rank of the group has a block, and computes another part of."""
    return functions.all_gather(value, dim, groups)


def reduce_scatter_to_sequence(
    value: torch.Tensor, dim: int = 0, groups: Groups = None
) -> torch.Tensor:
    """This rank's block of the sum over the group."""
    return functions.reduce_scatter(xm.REDUCE_SUM, value, scatter_dim=dim, groups=groups)


@of_one_tensor
def own_block(value: torch.Tensor, dim: int = 0, groups: Groups = None) -> torch.Tensor:
    """This rank's of as many blocks along `dim` as its group has ranks."""
    _require_alike("own_block", groups)
    return _block("own_block", value, dim, groups, _place(value, groups))


def _require_alike(op: str, groups: Groups) -> None:
    """Raise if ranks would have blocks of several sizes, or none: on all ranks, as they run."""
    refuse_partitions(op)
    lists, (everybody,) = members(groups), members(None)
    sizes = sorted({len(group) for group in lists})
    without = sorted(set(everybody).difference(*lists))
    if len(sizes) > 1 or without:
        what = f"are of the sizes {sizes}" if len(sizes) > 1 else f"leave out the ranks {without}"
        raise ValueError(
            f"{op}: groups = {show(groups)} {what}, but they must be of one size and hold every "
            f"rank of 0 to {len(everybody) - 1}. Put the others in groups of that size, or use "
            "functions.all_gather and functions.reduce_scatter, which fill up with zeros"
        )


def _own_group(groups: Groups) -> list[int]:
    rank = own_rank()
    return next(group for group in members(groups) if rank in group)


def _place(value: torch.Tensor, groups: Groups) -> torch.Tensor:
    """Where this rank is in its group."""
    place = _own_group(groups).index(own_rank())
    return as_data(place, torch.int64, value.device)  # type: ignore[no-any-return]


def _block(
    op: str, value: torch.Tensor, dim: int, groups: Groups, place: torch.Tensor
) -> torch.Tensor:
    ranks, dims = len(_own_group(groups)), value.dim()
    if not isinstance(dim, int) or not -dims <= dim < dims:
        raise ValueError(
            f"{op}: dim = {show(dim)}, but it must be a dimension of value, whose shape is "
            f"{list(value.shape)}"
            + (f": {-dims} to {dims - 1}. Pass one of them" if dims else ". Pass value.reshape(1)")
        )
    if value.shape[dim] % ranks:
        raise ValueError(
            f"{op}: dimension {dim} has the size {value.shape[dim]}, but it must be a "
            f"multiple of {ranks}, the ranks of the group. Pad it"
        )
    size = value.shape[dim] // ranks  # no divmod: torch.compile has none of sizes
    return value.index_select(dim, torch.arange(size, device=value.device) + place * size)


def _sum(value: Any, groups: Groups) -> Any:  # noqa: ANN401 (a tensor)
    return xm.all_reduce(xm.REDUCE_SUM, value, groups=groups)
