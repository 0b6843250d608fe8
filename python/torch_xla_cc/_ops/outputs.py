"""Results in tensors of the caller's."""

from __future__ import annotations

from typing import Any

import torch

from torch_xla_cc._ops import views
from torch_xla_cc._ops.types import Operands
from torch_xla_cc._runtime.device_tensors import become
from torch_xla_cc._runtime.private import is_functional_tensor, storage_use_count


def write(op: str, outputs: Operands, results: Operands) -> Any:  # noqa: ANN401 (as `outputs`)
    """Put results into tensors that the caller gave, and return those."""
    one = isinstance(results, torch.Tensor)
    if one != isinstance(outputs, torch.Tensor):
        kind = "a tensor" if one else "a list of tensors"
        raise TypeError(
            f"{op}: output is {type(outputs).__name__}, but it must be {kind} as the input"
        )
    targets = [outputs] if isinstance(outputs, torch.Tensor) else outputs
    if not isinstance(targets, (list, tuple)) or not all(
        isinstance(target, torch.Tensor) for target in targets
    ):
        raise TypeError(f"{op}: output must be a tensor, or a list of tensors for a list of inputs")
    values = [results] if isinstance(results, torch.Tensor) else results
    if len(targets) != len(values):
        raise ValueError(
            f"{op}: output has {len(targets)} tensors, but there are {len(values)} inputs. Give "
            "one output for each"
        )
    for index, (target, value) in enumerate(zip(targets, values, strict=True)):
        fits = target.shape == value.shape or _may_grow(target)
        if not fits or target.dtype != value.dtype:
            raise ValueError(
                f"{op}: output {index} is {target.dtype} of shape {list(target.shape)}, but the "
                f"result is {value.dtype} of shape {list(value.shape)}. Allocate it with that "
                "shape and dtype, or leave output out"
            )
        if not torch.compiler.is_compiling() and views.repeats(target):
            raise ValueError(
                f"{op}: output {index} is an expanded view, of shape {list(target.shape)}, but "
                "each element must have memory of its own. Pass another tensor, or leave output out"
            )
        if target.device != value.device:
            raise ValueError(
                f"{op}: output {index} is on {target.device}, but the result is on {value.device}"
            )
    with torch.no_grad():
        for target, value in zip(targets, values, strict=True):
            if target.shape == value.shape:
                target.copy_(value)
            else:
                torch.autograd.graph.increment_version(
                    target
                )  # who saved it for a gradient is told
                become(target, value.clone())
    return outputs


def _may_grow(target: torch.Tensor) -> bool:
    """Whether it can take another shape, as torch_xla has it.

    It is not traced, and no other tensor is of its memory: that would keep its shape, and be wrong.
    """
    if torch.compiler.is_compiling() or not is_functional_tensor(target) or target.requires_grad:
        return False
    return not target._is_view() and storage_use_count(target.untyped_storage()._cdata) <= _ALONE


_ALONE = 1  # the tensor
