"""What is left of a rank's graph when its collectives cannot run: all that they have no part in.

torch_xla can throw a graph away as a whole only, and ends the process when a later one uses what
was thrown away. So what depends on no collective is computed first. What does gets values that
nobody takes for right: NaN, the least number of an integer type, false.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import torch

from torch_xla_cc._runtime.private import XLAC

_MOST_S = 10.0  # for looking; a graph of this size would take long: the rest is lost as well


def save(rank: int, sync: Callable[..., Any]) -> list[torch.Tensor]:
    """Compute what depends on no collective, by `sync`; the tensors that do."""
    pending = _pending(rank)
    end = time.monotonic() + _MOST_S
    kept: list[torch.Tensor] = []
    lost: list[torch.Tensor] = []
    for x in pending:
        late = time.monotonic() > end
        depends = late or " xla_cc::" in XLAC._get_xla_tensors_text([x])
        (lost if depends else kept).append(x)
    if kept:
        try:
            sync(kept, [], wait=True, sync_xla_data=True)
        except RuntimeError:  # which is not what has to be told now
            lost += kept
    return lost


def spoil(lost: list[torch.Tensor]) -> None:
    """Give those that were thrown away something in place of no value."""
    with torch.no_grad():
        for x in lost:
            dtype = x.dtype
            value = float("nan") if dtype.is_floating_point or dtype.is_complex else None
            if value is None:
                value = 0 if dtype == torch.bool else torch.iinfo(dtype).min
            XLAC._replace_xla_tensor(x, torch.full(x.shape, value, dtype=dtype, device=x.device))


def _pending(rank: int) -> list[torch.Tensor]:
    """The tensors of its device that are still to be computed, as far as Python knows them."""
    found = []
    for one in gc.get_objects():
        if not issubclass(type(one), torch.Tensor):
            continue
        try:
            device = torch.Tensor.device.__get__(one)
            if device.type != "xla" or device.index != rank:
                continue
            XLAC._xla_get_tensor_id(one)
        except (RuntimeError, TypeError):
            continue  # FakeTensors, and what others build of tensors
        found.append(one)
    computed = XLAC._check_tensor_need_materialization(found)
    return [x for x, needed in zip(found, computed, strict=True) if needed]
