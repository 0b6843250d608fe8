"""Collectives with gradients.

A collective is one function of the tensors of all ranks. Its gradient here is that of the sum of
what all ranks compute of it: the true adjoint, by the collective that it is. Gradients of linear
ones are these functions again, so they have gradients of their own. Megatron's conventions, which
take a loss that every rank computes for one and the same, are in torch_xla_cc.regions.

`all_reduce` and `all_gather` have the arguments of torch_xla.core.functions, whose gradients are
another thing: they leave out what other ranks have to say.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, get_args

import torch

from torch_xla_cc import xla_model as xm
from torch_xla_cc._ops import channels as _channels
from torch_xla_cc._ops.channels import Channel
from torch_xla_cc._ops.linear import (
    Move,
    as_data,
    linear,
    members,
    of_one_tensor,
    refuse_partitions,
)
from torch_xla_cc._ops.types import Groups, ReduceType
from torch_xla_cc._ops.uneven import own_rank
from torch_xla_cc._runtime.show import show

_AVERAGES = (xm.REDUCE_SUM, xm.REDUCE_AVERAGE)
_KINDS = get_args(ReduceType)


@of_one_tensor
def all_reduce(
    reduce_type: ReduceType, value: torch.Tensor, scale: float = 1.0, groups: Groups = None
) -> torch.Tensor:
    """xm.all_reduce of a tensor.

    The gradient of a maximum or minimum goes to the ranks that have it, in equal parts; that of a
    product is by the factors of all ranks, which are gathered.
    """

    def reduced(x: Any) -> Any:  # noqa: ANN401 (a tensor)
        return xm.all_reduce(reduce_type, x, scale, groups)

    if reduce_type in _AVERAGES or not value.requires_grad:
        return linear(reduced, reduced, value)
    if reduce_type in (xm.REDUCE_MUL, "product"):
        return _product(value, groups) * scale
    if reduce_type not in (xm.REDUCE_MAX, xm.REDUCE_MIN):
        if reduce_type not in _KINDS:
            return linear(reduced, reduced, value)  # which refuses it: (R0)
        raise ValueError(
            f"all_reduce: reduce_type = {show(reduce_type)} has no gradient, but value requires "
            "one. Pass value.detach()"
        )
    with torch.no_grad():
        result = reduced(value)
        best = result if scale == 1 else xm.all_reduce(reduce_type, value, groups=groups)
        has_it = torch.eq(value, best).to(value.dtype)
        how_many: Any = xm.all_reduce(xm.REDUCE_SUM, has_it, groups=groups)
        share = has_it / how_many
    # Linear in the value, with the same gradient; its numbers, sums of parts, may be others.
    same: Any = all_reduce(xm.REDUCE_SUM, _where(has_it, value) * share, scale, groups)
    return _Instead.apply(same, result)  # type: ignore[no-any-return, no-untyped-call]


class _Instead(torch.autograd.Function):
    """A tensor whose gradient is another one's."""

    @staticmethod
    def forward(ctx: Any, of: torch.Tensor, value: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
        return value.clone()  # no view of what comes in: those refuse to be changed in place

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # noqa: ANN401
        return gradient, None


def _product(value: torch.Tensor, groups: Groups) -> torch.Tensor:
    """The product of what all ranks of the group have; on a rank in none, what it has."""
    rows = all_gather(value.unsqueeze(0), 0, groups)  # as many as the longest group has
    lists, (everybody,) = members(groups), members(None)
    if sum(map(len, lists)) == len(everybody) and len({len(group) for group in lists}) == 1:
        return rows.prod(0)
    # Behind those of this rank's group are zeros, and here as well: of each, whether it is there.
    known = value.detach().unsqueeze(0)
    # (Made of the value, as regions of SPMD mode have it.)
    there: Any = xm.all_gather(torch.logical_or(known == known, known != known), 0, groups)
    product = torch.where(there, rows, torch.ones_like(rows)).prod(0)
    return torch.where(there[0], product, value)


def _where(mask: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The value where the mask is not zero: what is not finite elsewhere has no influence."""
    return torch.where(mask != 0, value, torch.zeros_like(value))


@of_one_tensor
def all_gather(value: torch.Tensor, dim: int = 0, groups: Groups = None) -> torch.Tensor:
    """xm.all_gather of a tensor; going back, a reduce_scatter."""
    whole = value.reshape(1) if value.dim() == 0 else value
    return linear(
        lambda x: xm.all_gather(x, dim, groups),
        lambda g: xm.reduce_scatter(xm.REDUCE_SUM, g, 1.0, dim, groups=groups),
        whole,
    )


@of_one_tensor
def reduce_scatter(
    reduce_type: ReduceType,
    value: torch.Tensor,
    scale: float = 1.0,
    scatter_dim: int = 0,
    shard_count: int | None = None,
    groups: Groups = None,
) -> torch.Tensor:
    """xm.reduce_scatter of a tensor; going back, an all_gather."""
    if reduce_type == xm.REDUCE_SUM or not value.requires_grad or reduce_type not in _KINDS:
        return linear(
            lambda x: xm.reduce_scatter(reduce_type, x, scale, scatter_dim, shard_count, groups),
            lambda g: xm.all_gather(g * scale, scatter_dim, groups),
            value,
        )
    if reduce_type == xm.REDUCE_AVERAGE:
        ranks = _require_one_size("reduce_scatter", reduce_type, groups)
        scale /= ranks
        return reduce_scatter(xm.REDUCE_SUM, value, scale, scatter_dim, shard_count, groups)
    raise ValueError(
        f"reduce_scatter: reduce_type = {show(reduce_type)} has no gradient here, but value "
        "requires one. Use all_reduce and take the rank's block of it, or pass value.detach()"
    )


@of_one_tensor
def all_to_all(
    value: torch.Tensor,
    split_dimension: int = 0,
    concat_dimension: int = 0,
    split_count: int | None = None,
    groups: Groups = None,
) -> torch.Tensor:
    """xm.all_to_all of a tensor; going back, with both dimensions exchanged."""
    there, back = (split_dimension, concat_dimension), (concat_dimension, split_dimension)
    return linear(
        lambda x: xm.all_to_all(x, *there, split_count, groups),
        lambda g: xm.all_to_all(g, *back, split_count, groups),
        value,
    )


@of_one_tensor
def collective_permute(value: torch.Tensor, pairs: Sequence[Sequence[int]]) -> torch.Tensor:
    """xm.collective_permute of a tensor; going back, from targets to sources."""
    return linear(
        lambda x: xm.collective_permute(x, pairs),
        lambda g: xm.collective_permute(g, [(target, source) for source, target in pairs]),
        value,
    )


@of_one_tensor
def send_recv(value: torch.Tensor, channel: Channel) -> torch.Tensor:
    """xm.send and xm.recv on a channel, by all ranks; going back, the other way on the channel.

    A rank that is no target gets zeros.
    """
    if not isinstance(channel, Channel):
        raise TypeError(
            f"send_recv: channel is {show(channel)}, but it must be a Channel, which names its "
            "ranks: Channel(pairs=[(0, 1)])"
        )
    back = Channel([(target, source) for source, target in channel.pairs], channel.tag)

    def through(way: Channel) -> Move:
        return lambda x: _channels.through(x, way)

    return linear(through(channel), through(back), value)


@of_one_tensor
def collective_broadcast(
    value: torch.Tensor, root_ordinal: int = 0, groups: Groups = None
) -> torch.Tensor:
    """The root's tensor on all ranks of its group; going back, the sum of gradients to the root."""

    def spread(x: torch.Tensor) -> torch.Tensor:
        results = [x.clone()]
        xm.collective_broadcast(results, root_ordinal, groups)
        return results[0]

    # Of what only the root has, the sum is its adjoint; and the mask sends that to the root.
    held = _where(
        _on(value, _is_root("collective_broadcast", root_ordinal, groups, alone=True)), value
    )
    return linear(spread, lambda g: xm.all_reduce(xm.REDUCE_SUM, g, groups=groups), held)


@of_one_tensor
def gather(
    value: torch.Tensor, root_ordinal: int = 0, dim: int = 0, groups: Groups = None
) -> torch.Tensor:
    """All ranks' tensors, concatenated along `dim`, on the root; zeros on the others."""
    return _where(
        _on(value, _is_root("gather", root_ordinal, groups)), all_gather(value, dim, groups)
    )


@of_one_tensor
def scatter(
    value: torch.Tensor, root_ordinal: int = 0, dim: int = 0, groups: Groups = None
) -> torch.Tensor:
    """The rank's block of the root's tensor along `dim`; those of other ranks are not looked at."""
    held = _where(_on(value, _is_root("scatter", root_ordinal, groups)), value)
    return reduce_scatter(xm.REDUCE_SUM, held, scatter_dim=dim, groups=groups)


@of_one_tensor
def uneven_all_gather(
    value: torch.Tensor, sizes: Sequence[int], groups: Groups = None, *, padded: bool = False
) -> torch.Tensor:
    """xm.uneven_all_gather of a tensor; going back, an uneven_reduce_scatter."""
    return linear(
        lambda x: xm.uneven_all_gather(x, sizes, groups, padded=padded),
        lambda g: xm.uneven_reduce_scatter(xm.REDUCE_SUM, g, sizes, groups=groups, padded=padded),
        value,
    )


@of_one_tensor
def uneven_reduce_scatter(
    value: torch.Tensor,
    sizes: Sequence[int],
    scale: float = 1.0,
    groups: Groups = None,
    *,
    padded: bool = False,
) -> torch.Tensor:
    """xm.uneven_reduce_scatter, the sum, of a tensor; going back, an uneven_all_gather."""
    return linear(
        lambda x: xm.uneven_reduce_scatter(xm.REDUCE_SUM, x, sizes, scale, groups, padded=padded),
        lambda g: xm.uneven_all_gather(g * scale, sizes, groups, padded=padded),
        value,
    )


@of_one_tensor
def uneven_all_to_all(
    value: torch.Tensor,
    sizes: Sequence[Sequence[int]],
    groups: Groups = None,
    *,
    padded: bool = False,
) -> torch.Tensor:
    """xm.uneven_all_to_all of a tensor; going back, with the sizes transposed."""
    return linear(
        lambda x: xm.uneven_all_to_all(x, sizes, groups, padded=padded),
        lambda g: xm.uneven_all_to_all(g, list(zip(*sizes, strict=True)), groups, padded=padded),
        value,
    )


def _is_root(op: str, root: int, groups: Groups, alone: bool = False) -> bool:
    """Whether this rank is a root, or, with `alone`, in no group.

    As xm.collective_broadcast has it: in each group the member at the root's position is one.
    """
    refuse_partitions(op)
    rank, lists = own_rank(), members(groups)
    place = _place_of_root(op, root, lists)
    own = next((group for group in lists if rank in group), None)
    return alone if own is None else own[place] == rank


def _place_of_root(op: str, root: object, lists: list[list[int]]) -> int:
    """Where the root is in its group, and others in theirs; (B1) and (B2) of docs/spec.md."""

    def refuse(required: str, remedy: str, kind: type[Exception] = ValueError) -> Exception:
        return kind(f"{op}: root = {show(root)}, but it must be {required}. {remedy}")

    if not isinstance(root, (int, torch.SymInt)) and not hasattr(root, "__index__"):
        raise refuse("an int", "Name the rank that has the values", TypeError)
    number, last = operator.index(root), members(None)[0][-1]
    if not 0 <= number <= last:
        raise refuse(f"a rank of the world, 0 to {last} (B1)", "Name the rank that has the values")
    places = [group.index(number) for group in lists if number in group]
    if not places:
        raise refuse(f"in a group, and {lists} leaves it out (B2)", "Name a rank of a group")
    for group in lists:
        if places[0] >= len(group):
            raise refuse(
                f"at a position that every group has; it is number {places[0]} of its own, and "
                f"{group} is shorter (B2)",
                "Put the roots first in their groups",
            )
    return places[0]


def _on(value: torch.Tensor, condition: bool) -> torch.Tensor:
    """1 or 0, as data."""
    return as_data(int(condition), value.dtype, value.device).reshape(())  # type: ignore[no-any-return]


def _require_one_size(op: str, reduce_type: ReduceType, groups: Groups) -> int:
    sizes = {len(group) for group in members(groups)}
    if len(sizes) != 1:
        raise ValueError(
            f"{op}: groups have the sizes {sorted(sizes)}, but reduce_type = {show(reduce_type)} "
            "has a gradient for groups of one size only. Pass those"
        )
    return sizes.pop()
