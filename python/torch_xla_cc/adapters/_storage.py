"""Tensors of XLA whose storage FSDP frees and allocates again, under the same variable.

An XLA tensor has no storage that could be resized. While it is free, it holds a meta tensor: who
uses it gets an error. Its views follow when they are next used; until then they keep the values
alive that they had.
"""

from __future__ import annotations

import torch
import torch_xla

from torch_xla_cc._runtime.device_tensors import become
from torch_xla_cc._runtime.private import functionalize_sync, is_functional_tensor


def is_ours(tensor: torch.Tensor) -> bool:
    """Whether it is an XLA tensor, or was one before it was freed."""
    return bool(is_functional_tensor(tensor))


def free(tensor: torch.Tensor) -> None:
    """Of a shape and no values, where torch has storage of no size."""
    if tensor.device.type == "xla":
        become(tensor, torch.empty_like(tensor, device="meta"))


def alloc(tensor: torch.Tensor) -> None:
    """Undo free. Its values are to be written."""
    if tensor.device.type == "meta":
        become(tensor, torch.empty_like(tensor, device=torch_xla.device()))


def follow(view: torch.Tensor) -> None:
    """Have a view be what its base is now."""
    if is_functional_tensor(view):
        functionalize_sync(view)


def is_free(tensor: torch.Tensor) -> bool:
    """Whether it is free, or a view of what is."""
    follow(tensor)
    return tensor.device.type == "meta"
