"""Tensors of XLA whose storage FSDP frees and allocates again, under the same variable.

An XLA tensor has no storage that could be resized. While it is free, it holds a meta tensor: who
uses it gets an error. Its views follow when they are next used; until then they keep the values
alive that they had.
"""

from __future__ import annotations

import torch
import torch_xla

from torch_xla_cc import _C
from torch_xla_cc._runtime.device_tensors import become
from torch_xla_cc._runtime.private import is_functional_tensor


def is_ours(tensor: torch.Tensor) -> bool:
    """Whether it is an XLA tensor, or was one before it was freed."""
    return bool(is_functional_tensor(tensor))


def free(tensor: torch.Tensor) -> None:
    """Of a shape and no values, where torch has storage of no size."""
    if tensor.device.type == "xla":
        become(tensor, _empty(tensor, torch.device("meta")))


def alloc(tensor: torch.Tensor) -> None:
    """Undo free. Its values are to be written."""
    if tensor.device.type == "meta":
        become(tensor, _empty(tensor, torch_xla.device()))


def _empty(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Not empty_like: of a tensor without values that is an operator in Python."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


def follow(*views: torch.Tensor) -> None:
    """Have views be what their bases are now."""
    _C.follow(views)


def is_free(tensor: torch.Tensor) -> bool:
    """Whether it is free, or a view of what is."""
    follow(tensor)
    return tensor.device.type == "meta"
