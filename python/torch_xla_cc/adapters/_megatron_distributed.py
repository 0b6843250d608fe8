"""Megatron-core's distributed optimizer, in one program of all ranks.

Its optimizer steps each rank's part of each bucket as one tensor (adapters._megatron_parts). This
is done for Adam and AdamW of torch, on float32, bfloat16 and float16 parameters, in one instance of
the optimizer, where calls are in programs of all ranks. Others are left to Megatron-core.

What reads or writes the optimizer's state, or loads parameters, gets the pieces that Megatron-core
has, of its sizes. The next step makes parts of them again.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from torch_xla_cc._runtime.device_tensors import one_step
from torch_xla_cc._runtime.patches import Changes
from torch_xla_cc.adapters import _megatron_buffers, _megatron_clip, _megatron_parts
from torch_xla_cc.adapters._megatron_parts import Part, Parts, Piece
from torch_xla_cc.distributed import own_part

_KINDS = torch.optim.Adam, torch.optim.AdamW
_DTYPES = torch.float32, torch.bfloat16, torch.float16
_MOST_GROUPS = 63  # of parameters: their numbers are in six bits
_Theirs = Callable[..., Any]


def parts_of(optimizer: Any) -> Parts | None:  # noqa: ANN401 (a MegatronOptimizer)
    """The parts of an optimizer that has any."""
    parts: Parts | None = getattr(optimizer, "_xla_cc_parts", None)
    return parts


def _is_taken(optimizer: Any, groups: Mapping[torch.Tensor, int]) -> bool:  # noqa: ANN401
    """Whether all of it is what this is made for, on all ranks alike; `groups` are parameters'."""
    inner, config = optimizer.optimizer, optimizer.ddp_config
    if type(inner) not in _KINDS or len(inner.param_groups) > _MOST_GROUPS:
        return False
    if optimizer.config.use_precision_aware_optimizer or config.reuse_grad_buf_for_mxfp8_param_ag:
        return False
    if config.num_distributed_optimizer_instances > 1:
        return False
    buckets = [bucket for buffer in optimizer.buffers for bucket in buffer.buckets]
    return all(
        bucket.param_data is not None
        and bucket.param_data.dtype in _DTYPES
        and own_part.is_in_programs(optimizer.data_parallel_group, bucket.param_data)
        and all(x in groups for x in bucket.params_list)
        for bucket in buckets
    )


def _init(theirs: _Theirs, optimizer: Any, inner: Any, *args: Any, **options: Any) -> None:  # noqa: ANN401
    """DistributedOptimizer.__init__."""
    before = getattr(inner, "param_groups", ())
    groups = {x: number for number, group in enumerate(before) for x in group["params"]}
    _megatron_parts.run_all(groups)  # on all ranks alike; what theirs makes is not
    theirs(optimizer, inner, *args, **options)
    if not hasattr(optimizer, "buffers") or not _is_taken(optimizer, groups):
        return
    optimizer._xla_cc_parts = Parts(optimizer.optimizer, list(_parts(optimizer, groups)))


def _parts(optimizer: Any, groups: Mapping[torch.Tensor, int]) -> Iterator[Part]:  # noqa: ANN401
    """One of each bucket."""
    mains = {
        parameter: main
        for theirs, ours in (
            (optimizer.model_fp32_groups, optimizer.shard_fp32_groups),
            (optimizer.model_float16_groups, optimizer.shard_fp32_from_float16_groups),
        )
        for group, shards in zip(theirs, ours, strict=True)
        for parameter, main in zip(group, shards, strict=True)
    }
    for buffer, ranges in zip(optimizer.buffers, optimizer.gbuf_ranges, strict=True):
        (of_buckets,) = ranges.values()
        for bucket, of_bucket in zip(buffer.buckets, of_buckets, strict=True):
            part = Part(bucket, optimizer.data_parallel_group)
            pieces = []
            for parameter, places in of_bucket["param_map"].items():
                place = places["gbuf_local"]
                kind = groups[parameter] * _megatron_parts.A_GROUP + _how_it_counts(parameter)
                pieces.append(Piece(mains[parameter], place.start, place.end, kind))
            part.fill([groups[x] for x in bucket.params_list], pieces)
            yield part


def _how_it_counts(parameter: torch.Tensor) -> int:
    """In norms: NEVER, ON_THE_FIRST or ALWAYS."""
    clip_grads = importlib.import_module(_megatron_clip.OF_CLIPPING)
    if not clip_grads.param_is_not_shared(parameter):
        return _megatron_parts.NEVER
    is_own = clip_grads.param_is_not_tensor_parallel_duplicate
    on_others = is_own(parameter, tp_group=_megatron_clip.RankOf(1))
    return _megatron_parts.ALWAYS if on_others else _megatron_parts.ON_THE_FIRST


def _cut(theirs: _Theirs, optimizer: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401
    """What reads or writes pieces."""
    parts = parts_of(optimizer)
    if parts is None:
        return theirs(optimizer, *args, **options)
    with parts.cut():
        return theirs(optimizer, *args, **options)


def _copy_gradients(theirs: _Theirs, optimizer: Any) -> None:  # noqa: ANN401
    """DistributedOptimizer._copy_model_grads_to_main_grads."""
    parts = parts_of(optimizer)
    if parts is None:
        theirs(optimizer)
    else:
        parts.begin_step()


def _step(theirs: _Theirs, optimizer: Any) -> Any:  # noqa: ANN401
    """DistributedOptimizer.step_with_ready_grads."""
    parts = parts_of(optimizer)
    if parts is None or not parts.is_flat:
        return theirs(optimizer)
    with one_step():
        parts.spread()
        return theirs(optimizer)


def _copy_parameters(theirs: _Theirs, optimizer: Any) -> None:  # noqa: ANN401
    """DistributedOptimizer._copy_main_params_to_model_params, after a step."""
    parts = parts_of(optimizer)
    if parts is None or not parts.is_flat:
        theirs(optimizer)
    else:
        parts.end_step()


def _uses_pieces(name: str) -> bool:
    return "state" in name or name == "_copy_model_params_to_main_params"


def install(changes: Changes) -> None:
    """In the optimizer, and in the buffers whose parts it steps."""
    buffers = importlib.import_module("megatron.core.distributed.param_and_grad_buffer")
    _megatron_buffers.install(changes, buffers)
    of_optimizer = importlib.import_module("megatron.core.optimizer.distrib_optimizer")
    kind = of_optimizer.DistributedOptimizer
    for name, function in list(vars(kind).items()):
        if _uses_pieces(name) and inspect.isfunction(function):
            changes.wrap(kind, name, _cut)
    changes.wrap(kind, "__init__", _init)
    changes.wrap(kind, "_copy_model_grads_to_main_grads", _copy_gradients)
    changes.wrap(kind, "step_with_ready_grads", _step)
    changes.wrap(kind, "_copy_main_params_to_model_params", _copy_parameters)
