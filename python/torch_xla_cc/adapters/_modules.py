"""Modules that move to another device keep what is known of their parameters.

`module.to("xla")` makes new parameters: attributes that a program has set on the old ones (how a
weight is split, which gradients to sum) are gone, and a weight that two modules share becomes two.
On CUDA neither happens, and programs do not notice: they train something else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

_original: Callable[..., Any] | None = None
_thread = threading.local()


def install() -> None:
    """Replace torch.nn.Module._apply, through which `to`, `cuda` and the like go."""
    global _original
    if _original is None:
        _original = nn.Module._apply
        nn.Module._apply = _apply  # type: ignore[method-assign]


def uninstall() -> None:
    """Undo install."""
    global _original
    if _original is not None:
        nn.Module._apply = _original  # type: ignore[method-assign]
        _original = None


def _apply(
    module: nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True
) -> nn.Module:
    assert _original is not None
    is_outermost = not hasattr(_thread, "moved")
    if is_outermost:
        _thread.moved = {}
    try:
        before = dict(module._parameters)
        _original(module, fn, recurse)
        for name, old in before.items():
            module._parameters[name] = _known(old, module._parameters[name])
    finally:
        if is_outermost:
            del _thread.moved
    return module


def _known(old: nn.Parameter | None, new: nn.Parameter | None) -> nn.Parameter | None:
    """What stands for `old` now, with its attributes."""
    if old is None or new is None or new is old:
        return new
    # The old one is kept as well, or another could get its id.
    _, moved = _thread.moved.setdefault(id(old), (old, new))
    if moved is new:
        vars(new).update({key: value for key, value in vars(old).items() if key not in vars(new)})
    return moved  # type: ignore[no-any-return]
