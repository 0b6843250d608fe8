"""`x[mask] = number` without reading the mask, and numbers of a rank as data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torch_xla_cc.adapters import _rank_numbers
from torch_xla_cc.adapters._mode import Function, Mode


class FilledMasks(Mode):
    """Writes a number where a mask of XLA tensors says, as masked_fill_ does.

    PyTorch counts the True entries of a mask first. A lazy device has to run all that is pending
    for that, and programs differ with the count. A RankNumber becomes a tensor.
    """

    def __init__(self) -> None:
        as_data = dict.fromkeys(_rank_numbers.FUNCTIONS, _rank_numbers.as_data)
        super().__init__({torch.Tensor.__setitem__: _write, **as_data})


def _write(function: Function, args: Sequence[Any], keywords: dict[str, Any]) -> Any:  # noqa: ANN401
    x, index, value = args
    mask = _mask(x, index)
    if mask is None or not isinstance(value, (int, float)) or not _fits(value, x.dtype):
        return function(x, index, value)
    return fill(x, mask, value)


def fill(x: torch.Tensor, mask: torch.Tensor, value: float) -> None:
    """x[mask] = value, of a mask of the first dimensions."""
    x.masked_fill_(mask.reshape(mask.shape + (1,) * (x.dim() - mask.dim())), value)


def _mask(x: torch.Tensor, index: Any) -> torch.Tensor | None:  # noqa: ANN401 (what is in brackets)
    """The mask, if it is all that the index says: `[mask]`, `[mask, :]`, `[mask, ...]`.

    None for what torch refuses as well: masked_fill_ would broadcast a mask.
    """
    first, *others = index if isinstance(index, tuple) and index else (index,)
    if not isinstance(first, torch.Tensor) or first.dtype != torch.bool or first.dim() == 0:
        return None
    if x.device.type != "xla" or first.device != x.device:
        return None
    whole = [isinstance(one, slice) and one == slice(None) for one in others]
    if not all(one or other is Ellipsis for one, other in zip(whole, others, strict=True)):
        return None
    rest = x.dim() - first.dim()
    return first if sum(whole) <= rest and first.shape == x.shape[: first.dim()] else None


def _fits(value: float, dtype: torch.dtype) -> bool:
    """Whether the type has the number; torch says so where it has not, XLA takes another one."""
    if dtype == torch.bool:
        return True
    if dtype.is_floating_point or dtype.is_complex:
        return not math.isfinite(value) or abs(value) <= torch.finfo(dtype).max
    limits = torch.iinfo(dtype)
    return limits.min <= value <= limits.max
