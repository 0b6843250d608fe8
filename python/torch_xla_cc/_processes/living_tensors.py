"""The tensors that Python knows, in a fraction of the time that gc.get_objects() takes.

That lists half a million objects. Here only those that have become young since are looked at: what
becomes old was young when a collection began.
"""

from __future__ import annotations

import functools
import gc

import torch
from torch.utils.weak import TensorWeakRef

from torch_xla_cc import _C

_YOUNG = (0, 1)  # generations of Python's collector; what is in the last is old
_seen: dict[int, TensorWeakRef] = {}  # by id(): of living tensors, and of some that are gone


def all_of_them() -> list[torch.Tensor]:
    """Those of XLA devices, of all threads, as torch_xla has them."""
    _watch()
    for generation in _YOUNG:
        _see(_C.living_tensors(generation))
    found = {key: x for key, ref in _seen.items() if (x := ref()) is not None}
    for key in _seen.keys() - found.keys():
        del _seen[key]
    tensors = list(found.values())
    # A gradient that nobody has asked for yet, Python does not know; nor what views are views of.
    leaves = [x for x in tensors if x.requires_grad and x.is_leaf]
    tensors += [x.grad for x in leaves if x.grad is not None]
    return [inner for x in tensors for inner in _C.unwrapped(x)]


def _see(tensors: list[torch.Tensor]) -> None:
    _seen.update({id(x): TensorWeakRef(x) for x in tensors})


@functools.cache
def _watch() -> None:
    """From now on; what there is, is seen."""
    gc.callbacks.append(_before_collection)
    _see(_C.living_tensors())


def _before_collection(phase: str, info: dict[str, int]) -> None:
    if phase == "start" and info["generation"] > 0:
        for generation in _YOUNG:
            _see(_C.living_tensors(generation))
