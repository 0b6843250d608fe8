"""torch.nn.utils.clip_grad_norm_ of DTensors.

torch_xla puts one of its own in torch's place, for all devices. It makes tensors of its numbers,
with which no DTensor on an XLA device can be mixed; and it takes no `foreach=True`.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType, FunctionType
from typing import cast

import torch
from torch.distributed.tensor import DTensor
from torch.nn import utils

FUNCTION = cast("FunctionType", utils.clip_grad_norm_)
_of_torch_xla = FunctionType(
    FUNCTION.__code__, FUNCTION.__globals__, FUNCTION.__name__, FUNCTION.__defaults__
)


def clip(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float,
    error_if_nonfinite: bool,
    foreach: bool | None,
) -> torch.Tensor:
    """By torch where a gradient is a DTensor, and else by torch_xla."""
    all_of_them = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    theirs = _of_torch_xla
    if any(isinstance(x.grad, DTensor) for x in all_of_them):
        theirs = FUNCTION._orig  # type: ignore[attr-defined]
    clipped: torch.Tensor = theirs(all_of_them, max_norm, norm_type, error_if_nonfinite, foreach)
    return clipped


def _clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    # It runs with the names of torch_xla's module.
    from torch_xla_cc.adapters._dtensor_clip import clip

    return clip(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


CODE: CodeType = _clip_grad_norm_.__code__
