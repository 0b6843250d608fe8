"""ZeRO 1 and 2 of DeepSpeed as one program of all ranks: see deepspeed.py.

ZeRO joins the parameters of a group to one flat tensor, and a rank steps an equal part of it. Where
that begins and ends, inside of which parameters, is another matter on each rank, and DeepSpeed has
it in its programs: it reduces slices of gradients, and copies those of the rank. Here the gradients
of a group are reduced as one tensor, of which reduce_scatter gives each rank its part; and the
rank's part of the parameters is looked up in a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

import torch
from deepspeed import comm  # type: ignore[import-untyped]
from deepspeed.runtime.zero import stage_1_and_2  # type: ignore[import-untyped]

from torch_xla_cc._ops.call_modes import on_paper
from torch_xla_cc._runtime.patches import Changes
from torch_xla_cc.adapters import _deepspeed_fragments
from torch_xla_cc.distributed import own_part

_Theirs = Callable[..., Any]
_Optimizer = Any  # a DeepSpeedZeroOptimizer


class Parts(Sequence[torch.Tensor]):
    """The parts of a group's flat tensor, by rank. That of this rank is looked up.

    As slices they would be tensors that live: each a copy, in the next program.
    """

    def __init__(self, flat: torch.Tensor, optimizer: _Optimizer, group: int) -> None:
        self._flat = flat
        self._optimizer = optimizer
        self._group = group
        self.ranks = optimizer.real_dp_process_group[group]

    def __len__(self) -> int:
        return int(self.ranks.size())

    @overload
    def __getitem__(self, rank: int) -> torch.Tensor: ...
    @overload
    def __getitem__(self, rank: slice) -> list[torch.Tensor]: ...
    def __getitem__(self, rank: int | slice) -> torch.Tensor | list[torch.Tensor]:
        if isinstance(rank, slice):
            return [self._flat.tensor_split(len(self))[i] for i in range(*rank.indices(len(self)))]
        own = None
        if rank == self.ranks.rank():
            own = own_part.chunk(self._flat.detach(), 0, self.ranks)
        return self._flat.tensor_split(len(self))[rank] if own is None else own

    def clear(self) -> None:
        """Nothing is kept that could be let go of."""

    def stepped(self) -> torch.Tensor:
        """This rank's, as the optimizer has it."""
        part: torch.Tensor = self._optimizer.single_partition_of_fp32_groups[self._group]
        return part.detach().to(self._flat.dtype)


def _fits(optimizer: _Optimizer, flat: torch.Tensor, group: int) -> bool:
    """Whether the optimizer is one of these: data parallel, with all on the device."""
    others = (
        optimizer.cpu_offload,
        optimizer.zenflow,
        optimizer.has_moe_layers,
        optimizer.model_parallel_group is not None,
        "muon" in type(optimizer.optimizer).__name__.lower(),
    )
    ranks = optimizer.real_dp_process_group[group]
    fits = flat.numel() % ranks.size() == 0 and flat.device.type == "xla"
    # A dry run lowers for its target later, in the step.
    is_of_all = own_part.is_in_programs(ranks, flat) or (on_paper() and ranks.size() > 1)
    return fits and is_of_all and not any(others)


def is_ours(optimizer: _Optimizer) -> bool:
    """Whether it was made with parts that are looked up."""
    return bool(getattr(optimizer, "_xla_cc_is_ours", False))


def _partitions(
    theirs: _Theirs, optimizer: _Optimizer, tensor: torch.Tensor, group_id: int
) -> Sequence[torch.Tensor]:
    """get_data_parallel_partitions."""
    if not _fits(optimizer, tensor, group_id):
        parts: Sequence[torch.Tensor] = theirs(optimizer, tensor, group_id)
        return parts
    if not hasattr(optimizer, "_xla_cc_is_ours"):  # the first group, as it is made
        optimizer._xla_cc_is_ours = True
        optimizer._xla_cc_ready = {}  # by group, ids of parameters whose gradients are there
    return Parts(tensor, optimizer, group_id)


def _gather(
    theirs: _Theirs,
    groups_flat: Sequence[torch.Tensor],
    partitioned_param_groups: Sequence[Sequence[torch.Tensor]],
    *args: Any,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> None:
    """all_gather_dp_groups, after a step."""
    ours = [parts for parts in partitioned_param_groups if isinstance(parts, Parts)]
    if len(ours) < len(partitioned_param_groups):
        theirs(groups_flat, partitioned_param_groups, *args, **options)
        return
    for flat, parts in zip(groups_flat, ours, strict=True):
        comm.all_gather_into_tensor(flat, parts.stepped(), group=parts.ranks)


# Gradients: they stay where they are until all are there.


def _is_there(theirs: _Theirs, optimizer: _Optimizer, param: torch.nn.Parameter, i: int) -> None:
    """reduce_independent_p_g_buckets_and_remove_grads, which is called for each."""
    if not is_ours(optimizer):
        theirs(optimizer, param, i)
    elif param.numel() and getattr(param, "ds_grad_is_ready", True):
        optimizer._xla_cc_ready.setdefault(i, set()).add(id(param))


def _reduce(theirs: _Theirs, optimizer: _Optimizer, *args: Any, **options: Any) -> None:  # noqa: ANN401
    """reduce_ipg_grads, after a backward pass."""
    if not is_ours(optimizer):
        theirs(optimizer, *args, **options)
        return
    for i in sorted(optimizer._xla_cc_ready):
        part = _averaged(optimizer, i, optimizer._xla_cc_ready.pop(i))
        part = part.to(optimizer.gradient_accumulation_dtype)
        before = optimizer.averaged_gradients.get(i)
        if before is None:
            optimizer.averaged_gradients[i] = _buffer(part)
        else:
            before.flat_partition.add_(part)


def _buffer(part: torch.Tensor) -> list[torch.Tensor]:
    """What DeepSpeed takes for the gradients of a part, if it is flat already."""
    made: list[torch.Tensor] = stage_1_and_2.GradPartitionBufferGroup([part], part)
    return made


def _averaged(optimizer: _Optimizer, i: int, ready: set[int]) -> torch.Tensor:
    """This rank's part of a group's gradients, which are dropped."""
    params = optimizer.round_robin_bit16_groups[i]
    ranks = optimizer.real_dp_process_group[i]
    there = [param for param in params if id(param) in ready]
    dtype = optimizer.get_param_comm_dtype(there[0])
    for param in there:
        dtype = torch.promote_types(dtype, optimizer.get_param_comm_dtype(param))
    if optimizer.sequence_parallel_size > 1:
        dtype = torch.float32
    size = optimizer.partition_size[i] * ranks.size()
    flat = torch.cat([*_pieces(optimizer, i, ready, dtype, size)])
    before, after = _divisors(optimizer, ranks.size())
    part = flat.new_empty(size // ranks.size())
    comm.reduce_scatter_fn(part, flat if before == 1 else flat / before, group=ranks)
    for param in there:
        optimizer.clear_grad_attribute(param)
    return part if after == 1 else part / after


def _pieces(
    optimizer: _Optimizer, i: int, ready: set[int], dtype: torch.dtype, size: int
) -> Iterator[torch.Tensor]:
    """The gradients of a group, and zeros, as its parameters lie in the flat tensor."""
    device = optimizer.bit16_groups_flat[i].device
    end = 0
    offsets = optimizer.round_robin_bit16_offsets[i]
    for param, offset in zip(optimizer.round_robin_bit16_groups[i], offsets, strict=True):
        gradient = optimizer.get_gradient_for_reduction(param) if id(param) in ready else None
        if gradient is None:
            continue
        if offset > end:
            yield torch.zeros(offset - end, dtype=dtype, device=device)
        yield gradient.detach().reshape(-1).to(dtype)
        end = offset + gradient.numel()
    if size > end:
        yield torch.zeros(size - end, dtype=dtype, device=device)


def _divisors(optimizer: _Optimizer, ranks: int) -> tuple[float, float]:
    """What gradients are divided by before they are summed up, and after."""
    if not optimizer.gradient_average:
        return 1.0, 1.0
    world = ranks / float(optimizer.sequence_parallel_size)
    if optimizer.reduce_scatter or not optimizer.postscale_gradients:
        return world, 1.0
    before = optimizer.gradient_predivide_factor
    return before, world / before


def _is_flat(theirs: _Theirs, optimizer: _Optimizer, group_idx: int) -> bool:
    """_use_compact_grad_partition_buffer."""
    return is_ours(optimizer) or bool(theirs(optimizer, group_idx))


def _no_gradients(theirs: _Theirs, optimizer: _Optimizer, group_idx: int) -> list[torch.Tensor]:
    """_build_compact_grad_partition_buffer, of a group that no gradients came to."""
    if not is_ours(optimizer):
        made: list[torch.Tensor] = theirs(optimizer, group_idx)
        return made
    device = optimizer.bit16_groups_flat[group_idx].device
    dtype = optimizer.gradient_accumulation_dtype
    return _buffer(torch.zeros(optimizer.partition_size[group_idx], dtype=dtype, device=device))


def _norm(
    theirs: _Theirs,
    optimizer: _Optimizer,
    gradients: Iterable[torch.Tensor],
    params: Any,  # noqa: ANN401 (those in the part)
    *args: Any,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> torch.Tensor:
    """get_grad_norm_direct, which asks the parameters of each gradient whether it counts."""
    if is_ours(optimizer):
        params = optimizer.bit16_groups[0][:1]  # of the one gradient: any will do
    norm: torch.Tensor = theirs(optimizer, gradients, params, *args, **options)
    return norm


def _has_overflow(theirs: _Theirs, optimizer: _Optimizer, *args: Any, **options: Any) -> bool:  # noqa: ANN401
    """has_overflow, which reads: a norm is read after it, and says as much."""
    if is_ours(optimizer) and optimizer.compute_grad_norm:
        return False
    return bool(theirs(optimizer, *args, **options))


def install(changes: Changes) -> None:
    """In ZeRO 1 and 2."""
    zero = stage_1_and_2.DeepSpeedZeroOptimizer
    changes.wrap(zero, "get_data_parallel_partitions", _partitions)
    changes.wrap(stage_1_and_2, "all_gather_dp_groups", _gather)
    changes.wrap(zero, "reduce_independent_p_g_buckets_and_remove_grads", _is_there)
    changes.wrap(zero, "reduce_ipg_grads", _reduce)
    changes.wrap(zero, "_use_compact_grad_partition_buffer", _is_flat)
    changes.wrap(zero, "_build_compact_grad_partition_buffer", _no_gradients)
    changes.wrap(zero, "get_grad_norm_direct", _norm)
    changes.wrap(zero, "has_overflow", _has_overflow)
    _deepspeed_fragments.install(changes, is_ours)
