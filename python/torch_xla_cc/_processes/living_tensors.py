"""The tensors that live: those that operators have made, and what else Python knows.

That in a fraction of the time that gc.get_objects() takes, which lists half a million objects: only
those that have become young since are looked at. What becomes old was young when one began.
"""

from __future__ import annotations

import functools
import gc
import os

import torch
from torch.utils.weak import TensorWeakRef

from torch_xla_cc import _C
from torch_xla_cc._runtime.private import is_functional_tensor

_YOUNG = (0, 1)  # generations of Python's collector; what is in the last is old
_seen: dict[int, TensorWeakRef] = {}  # by id(): of living tensors, and of some that are gone


def all_of_them() -> list[torch.Tensor]:
    """Those of XLA devices, of all threads, as torch_xla has them."""
    watch()
    for generation in _YOUNG:
        _see(_C.living_tensors(generation))
    tensors = []
    for key, ref in _seen.copy().items():  # the collector, on any thread, may add to it
        x = ref()
        if x is not None:
            tensors.append(x)
        elif _seen.get(key) is ref:
            _seen.pop(key, None)
    # A gradient that nobody has asked for yet, Python does not know; nor what views are views of.
    leaves = [x for x in tensors if x.requires_grad and _is_leaf(x)]
    tensors += [x.grad for x in leaves if x.grad is not None]
    inner = [inner for x in tensors for inner in _C.unwrapped(x)]
    return list({id(x): x for x in (*inner, *_C.made_tensors())}.values())


def _is_leaf(x: torch.Tensor) -> bool:
    try:
        return x.is_leaf
    except RuntimeError:  # autograd has no graph for a view that must not be written to, and was
        return False


def _see(tensors: list[torch.Tensor]) -> None:
    # Not what functionalization has wrapped, which Python knows by the last line above: C++ alone
    # owns it, and may free it at any time.
    wraps = os.environ.get("XLA_DISABLE_FUNCTIONALIZATION", "0") in ("", "0")
    for x in tensors:
        if not wraps or is_functional_tensor(x):
            _seen[id(x)] = TensorWeakRef(x)


@functools.cache
def watch() -> None:
    """From now on; what there is, is seen."""
    gc.callbacks.append(_before_collection)
    _see(_C.living_tensors())


def _before_collection(phase: str, info: dict[str, int]) -> None:
    if phase == "start" and info["generation"] > 0:
        for generation in _YOUNG:
            _see(_C.living_tensors(generation))
