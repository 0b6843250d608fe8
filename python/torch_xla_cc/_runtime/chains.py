"""Chains of a rank's collectives, by tokens (docs/spec.md, Ordering)."""

from __future__ import annotations

import functools

import torch

from torch_xla_cc import _C
from torch_xla_cc._runtime.private import XLAC

_OURS = "xla_cc::"  # in the names of what our calls make in a graph


def begun(rank: int) -> torch.Tensor:
    """The start of one.

    Data from the host, so that the first step's program has it as a parameter as all later ones do.
    """
    return torch.zeros(1, dtype=torch.int32).to(torch.device("xla", rank))


first = functools.cache(begun)  # of all on a pod, where one ends with the program that it is in


def is_pending(rank: int, tensors: tuple[torch.Tensor, ...]) -> bool:
    """Whether collectives are pending, and these tensors, if there are any, need one: of a pod.

    Else a rank may read alone, as on TPU. The text of a graph takes less time than to compile it.
    """
    token = _C.token(rank)
    if token is None:
        return False
    *pending, chained = XLAC._check_tensor_need_materialization([*tensors, token])
    needed = [x for x, needs in zip(tensors, pending, strict=True) if needs]
    if not chained or (tensors and not needed):
        return False
    return not tensors or _OURS in XLAC._get_xla_tensors_text(needed)
