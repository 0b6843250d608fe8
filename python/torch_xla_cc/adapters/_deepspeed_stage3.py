"""ZeRO 3 of DeepSpeed as one program of all ranks: see deepspeed.py.

Of each parameter a rank has one of equal parts, the last with zeros behind it. DeepSpeed takes it
by its rank: as a slice, of other sizes where the number of elements does not divide, and some ranks
have nothing to do with a small parameter. Here parts are looked up in a table, all of one size; and
where DeepSpeed does with the first rank's what it is to do, it is told that this rank is that one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from deepspeed import comm  # type: ignore[import-untyped]
from deepspeed.runtime.zero import partition_parameters, stage3  # type: ignore[import-untyped]

from torch_xla_cc._runtime.patches import Changes
from torch_xla_cc.distributed import own_part

_Theirs = Callable[..., Any]


class _Told(threading.local):
    """What this thread tells DeepSpeed of its rank: None is what fits where it asks."""

    is_first: bool | None = None


_told = _Told()


@contextlib.contextmanager
def _telling(is_first: bool | None) -> Iterator[None]:
    """That this rank is the first, or not so."""
    before, _told.is_first = _told.is_first, is_first
    try:
        yield
    finally:
        _told.is_first = before


def _partition(
    theirs: _Theirs,
    init: Any,  # noqa: ANN401 (a zero.Init)
    param: Any,  # noqa: ANN401 (a parameter)
    buffer: Any = None,  # noqa: ANN401
    has_been_updated: bool = False,
    free_data: bool = True,
) -> None:
    """Init._partition_param."""
    is_there = param.ds_status is partition_parameters.ZeroParamStatus.AVAILABLE
    own = None
    if is_there and (param.ds_tensor is None or has_been_updated):
        own = own_part.padded_chunk(param.data.detach().reshape(-1), param.ds_process_group)
    if own is not None:
        param.data = own  # which is dropped then: DeepSpeed copies it, as the first rank's part
    with _telling(own is not None):
        theirs(init, param, buffer, has_been_updated, free_data)


def _rank_in_init(theirs: _Theirs, init: Any, param: Any) -> int:  # noqa: ANN401
    """Init._partition_rank: where parts are gathered, this rank's may lie anywhere before."""
    is_first = _told.is_first
    if is_first is None and not init.use_all_reduce_for_fetch_params:
        is_first = own_part.is_in_programs(init.get_partition_dp_group(param), param)
    return 0 if is_first else int(theirs(init, param))


def _reduce_to_owners(theirs: _Theirs, init: Any, *args: Any, **options: Any) -> None:  # noqa: ANN401
    """Init._reduce_scatter_gradients, which writes to this rank's place."""
    with _telling(False):
        theirs(init, *args, **options)


def _are_in_programs(params: list[Any]) -> bool:
    groups = {param.ds_process_group for param in params}
    return all(own_part.is_in_programs(group, *params) for group in groups)


def _reduce_scatter(
    theirs: _Theirs, tensors: list[torch.Tensor], group: dist.ProcessGroup
) -> list[torch.Tensor]:
    """reduce_scatter_coalesced: this rank's part of the average of each tensor."""
    if not own_part.is_in_programs(group, *tensors):
        parts: list[torch.Tensor] = theirs(tensors, group)
        return parts
    ranks = group.size()
    rows = []
    for tensor in tensors:
        flat = tensor.detach().reshape(-1)
        rows.append(torch.nn.functional.pad(flat, (0, -flat.numel() % ranks)).view(ranks, -1))
    joined = torch.cat(rows, 1).reshape(-1) / ranks
    part = joined.new_empty(joined.numel() // ranks)
    comm.reduce_scatter_fn(part, joined, group=group)
    return list(part.split([row.shape[1] for row in rows]))


def _keep(theirs: _Theirs, optimizer: Any, params: list[Any], parts: list[torch.Tensor]) -> Any:  # noqa: ANN401
    """partition_grads: of a small parameter also a part that is zeros alone."""
    is_ours = _are_in_programs(params)
    with _telling(is_ours and not optimizer.offload_optimizer):
        return theirs(optimizer, params, parts)


def _rank_of_part(theirs: _Theirs, optimizer: Any, param: Any) -> int:  # noqa: ANN401
    """_get_param_partition_rank."""
    return 0 if _told.is_first else int(theirs(optimizer, param))


def _in_front(value: torch.Tensor, param: Any) -> torch.Tensor | None:  # noqa: ANN401
    """This rank's part of a parameter's value where the first rank's is."""
    own = own_part.padded_chunk(value.detach().reshape(-1), param.ds_process_group)
    return own if own is None else torch.nn.functional.pad(own, (0, value.numel() - own.numel()))


def _set(theirs: _Theirs, optimizer: Any, value: torch.Tensor, param: Any, *state: Any) -> None:  # noqa: ANN401
    """set_fp32_grad_for_param and set_full_hp_param."""
    own = _in_front(value, param)
    with _telling(own is not None):
        theirs(optimizer, value if own is None else own, param, *state)


def _update(theirs: _Theirs, optimizer: Any, update: _Theirs, params: list[Any]) -> None:  # noqa: ANN401
    """update_fp32_grad_for_param_vectorized."""
    is_ours = _are_in_programs(params)

    def own(whole: torch.Tensor, param: Any) -> torch.Tensor:  # noqa: ANN401
        value: torch.Tensor = update(whole, param)
        mine = _in_front(value, param) if is_ours else None
        return value if mine is None else mine

    with _telling(is_ours):
        theirs(optimizer, own, params)


def _gather(theirs: _Theirs, optimizer: Any, param: Any, part: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
    """_fp32_state_allgather, which puts the part to its place in the result before."""
    group = optimizer._get_param_partition_group(param)
    if not own_part.is_in_programs(group, part.detach()):
        whole: torch.Tensor = theirs(optimizer, param, part)
        return whole
    part = part.detach().to(optimizer.master_weights_and_grads_dtype)
    gathered = part.new_empty(part.numel() * group.size())
    comm.all_gather_into_tensor(gathered, part, group=group)
    return gathered[: param.ds_numel].view(param.ds_shape)


def _make(theirs: _Theirs, optimizer: Any, *args: Any, **options: Any) -> None:  # noqa: ANN401
    """DeepSpeedZeroOptimizer_Stage3.__init__: without reduce_scatter it cuts sums by the rank."""
    theirs(optimizer, *args, **options)
    params = [param for group in optimizer.fp16_groups for param in group]
    is_ours = _are_in_programs(params)
    if is_ours and not optimizer.offload_optimizer:
        optimizer.reduce_scatter = True


def install(changes: Changes) -> None:
    """In ZeRO 3."""
    init, zero = partition_parameters.Init, stage3.DeepSpeedZeroOptimizer_Stage3
    changes.wrap(init, "_partition_param", _partition)
    changes.wrap(init, "_partition_rank", _rank_in_init)
    changes.wrap(init, "_reduce_scatter_gradients", _reduce_to_owners)
    changes.wrap(stage3, "reduce_scatter_coalesced", _reduce_scatter)
    changes.wrap(zero, "__init__", _make)
    changes.wrap(zero, "partition_grads", _keep)
    changes.wrap(zero, "_get_param_partition_rank", _rank_of_part)
    for name in ("set_fp32_grad_for_param", "set_full_hp_param"):
        changes.wrap(zero, name, _set)
    changes.wrap(zero, "update_fp32_grad_for_param_vectorized", _update)
    changes.wrap(zero, "_fp32_state_allgather", _gather)
