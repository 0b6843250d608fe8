"""What is left of a rank's graph when its collectives cannot run: all that they have no part in.

torch_xla can throw a graph away as a whole only, and ends the process when a later one uses what
was thrown away. So what depends on no collective is computed first. What does gets values that
nobody takes for right, where its type has one: NaN, the least number of an integer type. Tensors
that only C++ holds (what autograd has saved) are not found.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch

from torch_xla_cc import _C
from torch_xla_cc._runtime.private import XLAC


def pending(rank: int) -> list[torch.Tensor]:
    """The tensors of its device that are still to be computed, as far as Python knows them."""
    found = []
    for one in _C.living_tensors():
        try:
            if torch.Tensor.device.__get__(one).index != rank:
                continue
            XLAC._xla_get_tensor_id(one)
        except (RuntimeError, TypeError):
            continue  # FakeTensors, and what others build of tensors
        found.append(one)
    needed = XLAC._check_tensor_need_materialization(found)
    return [x for x, is_needed in zip(found, needed, strict=True) if is_needed]


def save(tensors: list[torch.Tensor], sync: Callable[..., Any]) -> list[torch.Tensor]:
    """Compute, by `sync`, those that depend on no collective; the others."""
    depends = _depend(tensors)
    kept = [x for x, lost in zip(tensors, depends, strict=True) if not lost]
    if kept:
        try:
            sync(kept, [], wait=True, sync_xla_data=True)
        except RuntimeError as error:  # which is not what has to be told now
            warnings.warn(
                "torch_xla_cc: what a rank had pending beside collectives that failed is lost as "
                f"well, since it could not be computed: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
            return tensors
    return [x for x, lost in zip(tensors, depends, strict=True) if lost]


def _depend(tensors: list[torch.Tensor]) -> list[bool]:
    """Which of them depend on collectives of ours."""
    # Lines of "%7 = f32[2]{0} aten::add(%5, %3), ..., ROOT=1", each behind those of its operands.
    depending: set[str] = set()
    of_roots: dict[int, bool] = {}
    for line in XLAC._get_xla_tensors_text(tensors).splitlines():
        own, *operands = re.findall(r"%(\d+)", line) or [""]
        if " xla_cc::" in line or not depending.isdisjoint(operands):
            depending.add(own)
        if root := re.search(r"ROOT=(\d+)", line):
            of_roots[int(root[1])] = own in depending
    # Of several that are one value, the last is named.
    return [
        of_roots[i] if i in of_roots else " xla_cc::" in XLAC._get_xla_tensors_text([x])
        for i, x in enumerate(tensors)
    ]


def spoil(lost: list[torch.Tensor]) -> None:
    """Give those that were thrown away something in place of no value."""
    with torch.no_grad():
        for x in lost:
            # A type that has no such value, or none that can be made, is not what has to be told.
            with contextlib.suppress(RuntimeError, TypeError):
                bad = torch.full(x.shape, _bad_value(x.dtype), dtype=x.dtype, device=x.device)
                XLAC._replace_xla_tensor(x, bad)


def _bad_value(dtype: torch.dtype) -> float | int | bool:
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return False if dtype == torch.bool else int(torch.iinfo(dtype).min)
