"""A data parallel rank's part of Megatron-core's buffers, in a program that all ranks have.

With its distributed optimizer, gradients are reduced to the rank's part of a buffer, and parameters
gathered from there: views that begin at another place on each rank. Here the part is a tensor of
its own, that is taken from the buffer and put there by a table of ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from torch_xla_cc._runtime.patches import Changes
from torch_xla_cc.distributed import own_part


def take(buffer: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor | None:
    """This rank's part of a flat buffer, a copy; None if it is not to be taken from a table."""
    return own_part.chunk(buffer.detach(), 0, group)


def put(buffer: torch.Tensor, part: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Write this rank's part, where take() takes it."""
    whole = own_part.with_chunk(buffer.detach(), part, group)
    assert whole is not None
    buffer.copy_(whole)


def _views(part: torch.Tensor, group: dist.ProcessGroup) -> list[torch.Tensor | None]:
    """In the place of shard_buffer()'s, of which the rank's is used."""
    return [part if rank == group.rank() else None for rank in range(group.size())]


def _start_param_sync(
    theirs: Callable[..., None],
    buckets: Any,  # noqa: ANN401 (a _ParamAndGradBucketGroup)
    *options: bool,
    **named: bool,
) -> None:
    """_ParamAndGradBucketGroup.start_param_sync: gathers the parameters."""
    group = buckets.intra_distributed_optimizer_instance_group
    views = buckets.cached_param_buffer_shard_list
    ours = []
    for number, bucket in enumerate(buckets.buckets):
        part = take(bucket.param_data, group)
        if part is not None:
            views[number] = _views(part, group)
            ours.append(number)
    theirs(buckets, *options, **named)
    for number in ours:
        views[number] = None  # what is in the buffer then


def _start_grad_sync(
    theirs: Callable[..., None],
    buckets: Any,  # noqa: ANN401 (a _ParamAndGradBucketGroup)
    force_all_reduce: bool | None = False,
) -> None:
    """_ParamAndGradBucketGroup.start_grad_sync: reduces gradients, to the rank's part."""
    if buckets.ddp_config.use_distributed_optimizer and not force_all_reduce:
        group = buckets.intra_distributed_optimizer_instance_group
        views = buckets.cached_grad_buffer_shard_list
        for number, bucket in enumerate(buckets.buckets):
            data = bucket.grad_data
            if views[number] is None and own_part.is_in_programs(group, data):
                part = torch.zeros_like(data[: data.numel() // group.size()])
                views[number] = _views(part, group)
    theirs(buckets, force_all_reduce=force_all_reduce)


def _finish_grad_sync(
    theirs: Callable[..., None],
    buckets: Any,  # noqa: ANN401 (a _ParamAndGradBucketGroup)
    force_all_reduce: bool | None = False,
) -> None:
    """_ParamAndGradBucketGroup.finish_grad_sync: waits until gradients are reduced."""
    theirs(buckets, force_all_reduce=force_all_reduce)
    if not buckets.ddp_config.use_distributed_optimizer:
        return
    group = buckets.intra_distributed_optimizer_instance_group
    views = buckets.cached_grad_buffer_shard_list
    for number, bucket in enumerate(buckets.buckets):
        if views[number] is not None and own_part.is_in_programs(group, bucket.grad_data):
            put(bucket.grad_data, views[number][group.rank()], group)
            views[number] = None


def install(changes: Changes, buffers: Any) -> None:  # noqa: ANN401 (Megatron-core's module)
    """In the calls of each group of buckets."""
    group = buffers._ParamAndGradBucketGroup
    changes.wrap(group, "start_param_sync", _start_param_sync)
    changes.wrap(group, "start_grad_sync", _start_grad_sync)
    changes.wrap(group, "finish_grad_sync", _finish_grad_sync)
