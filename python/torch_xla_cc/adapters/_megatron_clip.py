"""A step of Megatron-core's optimizer as one step of the device, without a read.

Megatron-core reads the norm of each gradient (without Apex), then the norm of all, chooses by it
whether to clip, and reads how many zeros there are. Each read runs the device, and ends a program.
Here these are tensors of the step's program: the optimizer's step returns them as tensors of no
dimension, that whoever prints them reads. Gradients that are not on an XLA device, or are DTensors,
are left to Megatron-core.

What tensor parallel ranks have alike is counted on the first alone. Megatron-core chooses by the
rank in Python; here it is a choice of the program, so that all ranks have one.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from torch_xla_cc._runtime.device_tensors import one_step
from torch_xla_cc._runtime.patches import Changes
from torch_xla_cc.distributed import own_part

OF_CLIPPING = "megatron.core.optimizer.clip_grads"
# An attribute of a parameter that is made of several: a function of whether this is the first
# tensor parallel rank, which gives a mask of the elements that count on this rank.
COUNTS = "_xla_cc_counts"
_CLIPPED = (torch.float32, torch.bfloat16)
_USERS = ("megatron.core.optimizer.optimizer", "megatron.core.optimizer.layer_wise_optimizer")


class RankOf(NamedTuple):
    """In the place of a tensor parallel group, to hear what is done on that rank of it."""

    number: int

    def rank(self) -> int:
        """That it is."""
        return self.number


def tensor_parallel_group() -> Any:  # noqa: ANN401 (a ProcessGroup, or None before there is one)
    """Megatron-core's."""
    state = importlib.import_module("megatron.core.parallel_state")
    return state.get_tensor_model_parallel_group(check_initialized=False)


def is_first(tp_group: dist.ProcessGroup | None, like: torch.Tensor) -> torch.Tensor | bool:
    """Whether this is the first rank of the tensor parallel group, by the program."""
    group = tp_group or tensor_parallel_group()
    if group is None or group.size() == 1:
        return True
    rank = own_part.rank(group, like)
    return bool(group.rank() == 0) if rank is None else rank == 0


def counted_once(
    counted: Callable[[Any], list[torch.Tensor]],
    tp_group: dist.ProcessGroup | None,
) -> list[torch.Tensor]:
    """`counted(group)` on this rank of its group, by the program: zeros where others count it."""
    group = tp_group or tensor_parallel_group()
    on_first = counted(RankOf(0))
    if group is None or group.size() == 1 or not on_first:
        return on_first
    rank = own_part.rank(group, on_first[0])
    if rank is None:
        return counted(group)
    on_others = {id(x) for x in counted(RankOf(1))}
    return [
        x if id(x) in on_others else torch.where(rank == 0, x, x.new_zeros(())) for x in on_first
    ]


def _are_ours(tensors: Iterable[torch.Tensor]) -> bool:
    return all(x.device.type == "xla" and not isinstance(x, DTensor) for x in tensors)


def _list(tensors: torch.Tensor | Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _gradient(parameter: torch.Tensor, is_decoupled: bool) -> Any:  # noqa: ANN401 (or None)
    return getattr(parameter, "decoupled_grad" if is_decoupled else "grad", None)


def grad_norm(
    theirs: Callable[..., Any],
    grads_for_norm: torch.Tensor | Sequence[torch.Tensor],
    norm_type: float = 2,
    grad_stats_parallel_group: dist.ProcessGroup | None = None,
) -> Any:  # noqa: ANN401 (a float of theirs, or a tensor)
    """get_grad_norm_fp32. The call of the group is theirs: a rank may have no gradient at all."""
    gradients = [x.detach() for x in _list(grads_for_norm)]
    norm_type = float(norm_type)  # it may be "inf": of that, XLA's maximum loses what is no number
    if not gradients or norm_type == math.inf or not _are_ours(gradients):
        return theirs(gradients, norm_type, grad_stats_parallel_group)
    kind = torch.float32  # in bf16, torch_xla sums in it
    norms = torch.stack([torch.linalg.vector_norm(x, norm_type, dtype=kind) for x in gradients])
    total = norms.pow(norm_type).sum().reshape(1)
    dist.all_reduce(total, op=dist.ReduceOp.SUM, group=grad_stats_parallel_group)
    return total[0].pow(1.0 / norm_type)


def clip(
    theirs: Callable[..., None],
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    total_norm: Any,  # noqa: ANN401 (as grad_norm gives it)
    use_decoupled_grad: bool = False,
) -> None:
    """clip_grad_by_total_norm_fp32: gradients times one, where theirs leaves them alone."""
    held = _list(parameters)
    gradients = [x for p in held if (x := _gradient(p, use_decoupled_grad)) is not None]
    kinds = _CLIPPED if use_decoupled_grad else _CLIPPED[:1]  # others are refused there
    is_kind = all(x.dtype in kinds for x in gradients)
    if not isinstance(total_norm, torch.Tensor) or not is_kind or not _are_ours(gradients):
        theirs(held, max_norm, total_norm, use_decoupled_grad)
        return
    scale = max_norm / (total_norm + 1.0e-6)
    scale = torch.where(scale < 1.0, scale, torch.ones_like(scale))  # one if it is not a number
    for gradient in gradients:
        gradient.detach().mul_(scale)


def count_zeros(
    theirs: Callable[..., Any],
    parameters: torch.Tensor | Iterable[torch.Tensor],
    grad_stats_parallel_group: dist.ProcessGroup | None,
    use_decoupled_grad: bool = False,
    tp_group: dist.ProcessGroup | None = None,
) -> Any:  # noqa: ANN401 (a float of theirs, or a tensor)
    """count_zeros_fp32. As with the norm, the call of the group is theirs."""
    parameters = _list(parameters)
    held = [p for p in parameters if _gradient(p, use_decoupled_grad) is not None]
    gradients = [_gradient(p, use_decoupled_grad) for p in held]
    is_of_fsdp = any(getattr(p, "__fsdp_param__", False) for p in held)
    if not gradients or is_of_fsdp or not _are_ours([*held, *gradients]):
        return theirs(parameters, grad_stats_parallel_group, use_decoupled_grad, tp_group)
    clip_grads = importlib.import_module(OF_CLIPPING)
    is_zero = [x == 0 for x in gradients]
    masks = {id(p): mask for p in held if (mask := getattr(p, COUNTS, None))}
    zeros = [
        (x & masks[id(p)](is_first(tp_group, x)) if id(p) in masks else x).sum().float()
        for p, x in zip(held, is_zero, strict=True)
    ]

    def counted(group: Any) -> list[torch.Tensor]:  # noqa: ANN401 (a group, or a RankOf)
        is_own = clip_grads.param_is_not_tensor_parallel_duplicate
        is_alone = clip_grads.param_is_not_shared
        return [
            count
            for p, count in zip(held, zeros, strict=True)
            if id(p) in masks or (is_alone(p) and is_own(p, tp_group=group))
        ]

    counts = counted_once(counted, tp_group)
    total = torch.stack(counts).sum() if counts else torch.zeros((), device=zeros[0].device)
    total = total.reshape(1)
    dist.all_reduce(total, op=dist.ReduceOp.SUM, group=grad_stats_parallel_group)
    return total[0]


def _norm_of_several(theirs: Callable[..., Any], chained: Any) -> Any:  # noqa: ANN401
    """ChainedOptimizer.get_grad_norm, of optimizers whose gradients are of different groups."""
    optimizers = chained.chained_optimizers
    if len(optimizers) == 1 or chained.grads_states_parallel_group_is_shared():
        return theirs(chained)
    norms = [norm for one in optimizers if (norm := one.get_grad_norm()) is not None]
    return sum(norm**2 for norm in norms) ** 0.5


def _step(theirs: Callable[..., Any], optimizer: Any) -> Any:  # noqa: ANN401
    with one_step():
        return theirs(optimizer)


def install(changes: Changes) -> None:
    """Functions where they are defined, and where they have been imported."""
    ours: dict[str, Callable[..., Any]] = {
        "get_grad_norm_fp32": grad_norm,
        "clip_grad_by_total_norm_fp32": clip,
        "count_zeros_fp32": count_zeros,
    }
    # All of them first: what is imported later would get ours for theirs.
    modules = [importlib.import_module(name) for name in (OF_CLIPPING, *_USERS)]
    for module in modules:
        for function, wrapper in ours.items():
            if hasattr(module, function):
                changes.wrap(module, function, wrapper)
    _, optimizer, layer_wise = modules
    changes.wrap(optimizer.ChainedOptimizer, "get_grad_norm", _norm_of_several)
    kinds = (
        *(optimizer.MixedPrecisionOptimizer, optimizer.FP32Optimizer, optimizer.ChainedOptimizer),
        layer_wise.LayerWiseDistributedOptimizer,
    )
    for kind in kinds:
        changes.wrap(kind, "step", _step)
