"""The collectives of torch_xla.core.xla_model 2.9.0, lowered natively.

Same names, arguments, defaults, list forms and `output=` forms, so `from torch_xla_cc import
xla_model as xm` does for a module that calls nothing else of xm. torch_xla_cc.install() has
torch_xla's own module use them, beside all else that it has (mark_step, optimizer_step, ...). On
top of those: defaults where torch_xla has none, the reduce kinds xor, average and
premultiplied_sum, and channels that name their ranks.

`pin_layout`, `channel_id` and `use_global_device_ids` are accepted and mean nothing: no layout
is pinned, and channels are a matter of the device kind. Results carry no
gradient, as those of torch_xla: torch_xla_cc.functions has those that do.

`fallback` is "allow", "warn" or "error" for one call, over torch_xla_cc.fallback().
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from torch_xla_cc import _C
from torch_xla_cc._ops import channels as _channels
from torch_xla_cc._ops import uneven as _uneven
from torch_xla_cc._ops.buckets import bucketized
from torch_xla_cc._ops.channels import Channel
from torch_xla_cc._ops.fallback_policy import policy_per_call
from torch_xla_cc._ops.operators import compiling, operator
from torch_xla_cc._ops.outputs import write
from torch_xla_cc._ops.types import Groups, Policy, ReduceType, Tensors

REDUCE_SUM: Final = "sum"
REDUCE_MUL: Final = "mul"
REDUCE_AND: Final = "and"
REDUCE_OR: Final = "or"
REDUCE_MIN: Final = "min"
REDUCE_MAX: Final = "max"
REDUCE_XOR: Final = "xor"
REDUCE_AVERAGE: Final = "average"
REDUCE_PREMULTIPLIED_SUM: Final = "premultiplied_sum"


@policy_per_call
def all_reduce(
    reduce_type: ReduceType,
    inputs: Tensors,
    scale: float = 1.0,
    groups: Groups = None,
    pin_layout: bool = True,
    *,
    factor: float = 1.0,
    fallback: Policy | None = None,
) -> Tensors:
    """Reduce over the ranks of each group; every rank gets the result.

    Args:
      reduce_type: one of the REDUCE_ constants.
      inputs: a tensor, whose reduction is returned; or a list, which is reduced in place.
      scale: multiplies the result.
      groups: lists of ranks; None for all ranks together. A rank in none keeps what it has.
      factor: multiplies each rank's operand first; for REDUCE_PREMULTIPLIED_SUM.
    """
    if isinstance(inputs, (list, tuple)) and not inputs:
        return inputs  # an optimizer without gradients
    if compiling():
        results = operator("all_reduce", inputs, reduce_type, scale, factor, groups or [])
    elif isinstance(inputs, torch.Tensor):
        return _C.all_reduce(inputs, reduce_type, scale, factor, groups)  # type: ignore[no-any-return]
    else:
        results = _C.all_reduce(inputs, reduce_type, scale, factor, groups)
    return results if isinstance(inputs, torch.Tensor) else write("all_reduce", inputs, results)  # type: ignore[no-any-return]


@policy_per_call
def all_gather(
    value: Tensors,
    dim: int = 0,
    groups: Groups = None,
    output: Tensors | None = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
    *,
    fallback: Policy | None = None,
) -> Tensors:
    """Concatenate the ranks' values along `dim`, in the order of the group.

    Args:
      value: a tensor, or a list of them, which travel in one instruction.
      dim: the dimension to gather along; negative ones count from the end.
      groups: lists of ranks; None for all ranks together. See docs/spec.md for groups of several
        sizes, and for ranks in none.
      output: where to put the result: a tensor, or a list if `value` is one.
    """
    if isinstance(value, (list, tuple)) and not value:
        results = []
    elif compiling():
        results = operator("all_gather", value, dim, groups or [])
    else:
        results = _C.all_gather(value, dim, groups)
    return results if output is None else write("all_gather", output, results)  # type: ignore[no-any-return]


@policy_per_call
def reduce_scatter(
    reduce_type: ReduceType,
    input: Tensors,
    scale: float = 1.0,
    scatter_dim: int = 0,
    shard_count: int | None = None,
    groups: Groups = None,
    output: Tensors | None = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
    *,
    factor: float = 1.0,
    fallback: Policy | None = None,
) -> Tensors:
    """Reduce over the ranks of each group; every rank gets its block of `scatter_dim`.

    Args:
      reduce_type: one of the REDUCE_ constants.
      input: a tensor, or a list of them.
      scale: multiplies the result.
      scatter_dim: the dimension that is cut; its size must divide by the ranks of a group.
      shard_count: the number of ranks of a group, if it is to be checked.
      groups: lists of ranks; None for all ranks together. See docs/spec.md for groups of several
        sizes, and for ranks in none.
      output: where to put the result: a tensor, or a list if `input` is one.
      factor: multiplies each rank's operand first; for REDUCE_PREMULTIPLIED_SUM.
    """
    fields = (reduce_type, scale, factor, scatter_dim, shard_count)
    if isinstance(input, (list, tuple)) and not input:
        results = []
    elif compiling():
        results = operator("reduce_scatter", input, *fields, groups or [])
    else:
        results = _C.reduce_scatter(input, *fields, groups)
    return results if output is None else write("reduce_scatter", output, results)  # type: ignore[no-any-return]


@policy_per_call
def all_gather_bucketized(
    input_list: list[torch.Tensor],
    dim: int = 0,
    groups: Groups = None,
    output: list[torch.Tensor] | None = None,
    pin_layout: bool = False,
    bucket_cap_mb: float = 160,
    *,
    fallback: Policy | None = None,
) -> list[torch.Tensor]:
    """all_gather of a list, in instructions of about `bucket_cap_mb` MiB each."""
    return bucketized(
        "all_gather_bucketized",
        input_list,
        output,
        bucket_cap_mb,
        lambda inputs, outputs: all_gather(inputs, dim, groups, outputs),
    )


@policy_per_call
def reduce_scatter_bucketized(
    reduce_type: ReduceType,
    input_list: list[torch.Tensor],
    scale: float = 1.0,
    scatter_dim: int = 0,
    shard_count: int | None = None,
    groups: Groups = None,
    output: list[torch.Tensor] | None = None,
    pin_layout: bool = False,
    bucket_cap_mb: float = 160,
    *,
    fallback: Policy | None = None,
) -> list[torch.Tensor]:
    """reduce_scatter of a list, in instructions of about `bucket_cap_mb` MiB each."""
    return bucketized(
        "reduce_scatter_bucketized",
        input_list,
        output,
        bucket_cap_mb,
        lambda inputs, outputs: reduce_scatter(
            reduce_type, inputs, scale, scatter_dim, shard_count, groups, outputs
        ),
    )


@policy_per_call
def all_to_all(
    value: Tensors,
    split_dimension: int,
    concat_dimension: int,
    split_count: int | None = None,
    groups: Groups = None,
    pin_layout: bool = True,
    *,
    fallback: Policy | None = None,
) -> Tensors:
    """Cut along `split_dimension`, send block i to member i, concatenate along `concat_dimension`.

    Args:
      value: a tensor, or a list of them.
      split_dimension: its size must divide by the ranks of a group.
      concat_dimension: may be the same.
      split_count: the number of ranks of a group, if it is to be checked.
      groups: lists of ranks; None for all ranks together. See docs/spec.md for groups of several
        sizes, and for ranks in none.
    """
    fields = (split_dimension, concat_dimension, split_count)
    if compiling():
        return operator("all_to_all", value, *fields, groups or [])  # type: ignore[no-any-return]
    return _C.all_to_all(value, *fields, groups)  # type: ignore[no-any-return]


@policy_per_call
def uneven_all_gather(
    value: Tensors,
    sizes: Sequence[int],
    groups: Groups = None,
    *,
    padded: bool = False,
    fallback: Policy | None = None,
) -> Tensors:
    """Concatenate along dimension 0 what the ranks give, each another number of rows.

    Args:
      value: this rank's tensor, of sizes[rank] rows; or a list of such tensors.
      sizes: for every rank of the world, how many rows it gives; 0 for nothing.
      groups: lists of ranks; None for all ranks together.
      padded: the tensor has as many rows as the largest of `sizes` on every rank, and so has the
        result, with zeros behind what counts. One program for all ranks, as TPUs need it.
    """
    return _uneven.call(
        "uneven_all_gather", "value", value, (sizes,), groups, padded, _uneven.of_all_gather
    )


@policy_per_call
def uneven_reduce_scatter(
    reduce_type: ReduceType,
    input: Tensors,
    sizes: Sequence[int],
    scale: float = 1.0,
    groups: Groups = None,
    *,
    factor: float = 1.0,
    padded: bool = False,
    fallback: Policy | None = None,
) -> Tensors:
    """Reduce over the ranks of each group; every rank gets its own number of rows of the result.

    Args:
      reduce_type: one of the REDUCE_ constants.
      input: this rank's tensor, of as many rows as its group gets together; or a list of such.
      sizes: for every rank of the world, how many rows of dimension 0 it gets; 0 for nothing.
      scale: multiplies the result.
      groups: lists of ranks; None for all ranks together.
      factor: multiplies each rank's operand first; for REDUCE_PREMULTIPLIED_SUM.
      padded: as of uneven_all_gather: the largest number of rows on every rank.
    """
    fields = (reduce_type, scale, factor, sizes)
    return _uneven.call(
        "uneven_reduce_scatter", "input", input, fields, groups, padded, _uneven.of_reduce_scatter
    )


@policy_per_call
def uneven_all_to_all(
    value: Tensors,
    sizes: Sequence[Sequence[int]],
    groups: Groups = None,
    *,
    padded: bool = False,
    fallback: Policy | None = None,
) -> Tensors:
    """Send to each member of the group its own number of rows; concatenate what arrives.

    Args:
      value: this rank's rows, in the order in which its group lists the receivers; or a list of
        such tensors.
      sizes: sizes[i][j] is how many rows of dimension 0 rank i sends to rank j; the same on every
        rank, and 0 for ranks that are not in one group.
      groups: lists of ranks; None for all ranks together.
      padded: as of uneven_all_gather: the largest number of rows on every rank.
    """
    return _uneven.call(
        "uneven_all_to_all", "value", value, (sizes,), groups, padded, _uneven.of_all_to_all
    )


@policy_per_call
def collective_permute(
    value: Tensors, pairs: Sequence[Sequence[int]], *, fallback: Policy | None = None
) -> Tensors:
    """Send the value of each pair's source to its target; a rank that is no target gets zeros.

    Args:
      value: a tensor, or a list of them.
      pairs: (source, target) ranks; each rank at most once as source and once as target.
    """
    if compiling():
        return operator("collective_permute", value, [list(p) for p in pairs])  # type: ignore[no-any-return]
    return _C.collective_permute(value, pairs)  # type: ignore[no-any-return]


@policy_per_call
def collective_broadcast(
    tensors: list[torch.Tensor],
    root_ordinal: int = 0,
    groups: Groups = None,
    pin_layout: bool = True,
    *,
    fallback: Policy | None = None,
) -> None:
    """Overwrite the tensors, in place, with those of the root.

    Args:
      tensors: the tensors.
      root_ordinal: the rank that has the values. With several groups, each gets those of its member
        at the same position as this rank has in its own.
      groups: lists of ranks; None for all ranks together. A rank in none keeps what it has.
    """
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(
            f"collective_broadcast: tensors is {type(tensors).__name__}, but it must be a list"
        )
    if not tensors:
        return
    if compiling():
        results = operator("collective_broadcast", tensors, root_ordinal, groups or [])
    else:
        results = _C.collective_broadcast(tensors, root_ordinal, groups)
    write("collective_broadcast", tensors, results)


@policy_per_call
def send(
    value: torch.Tensor, channel_id: int | Channel, *, fallback: Policy | None = None
) -> torch.Tensor:
    """Send a tensor through a channel; returns it.

    Args:
      value: the tensor.
      channel_id: a Channel, which names its ranks: every rank calls send and then recv on it, and
        the two are one instruction. Or a bare id, between CPU devices only: the rank that calls
        send and the rank that calls recv with the same id are partners, through the host.
    """
    return _channels.send(value, channel_id)


@policy_per_call
def recv(
    output: torch.Tensor | Sequence[int],
    channel_id: int | Channel,
    dtype: torch.dtype = torch.float32,
    *,
    fallback: Policy | None = None,
) -> torch.Tensor:
    """Receive a tensor from a channel; returns it. On a rank that is no target, zeros.

    Args:
      output: the shape, or a tensor of the shape, dtype and device to receive.
      channel_id: as of send.
      dtype: the dtype, if only a shape is given.
    """
    if not isinstance(output, torch.Tensor):
        output = _channels.place(output, dtype)
    return _channels.recv(output, channel_id)
