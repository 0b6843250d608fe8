"""Modules that move to another device keep their parameters.

`module.to("xla")` makes new parameters: attributes that a program has set on the old ones (how a
weight is split, which gradients to sum) are gone, a weight that two modules share becomes two, and
an optimizer has the old ones. On CUDA none of that happens, and programs do not notice: they train
something else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torch_xla_cc._runtime.patches import Changes, Patches


def _make(changes: Changes) -> None:
    changes.wrap(nn.Module, "_apply", _apply)  # through which `to`, `cuda` and the like go


patches = Patches("adapters._modules", _make)


def _apply(
    theirs: Callable[..., Any],
    module: nn.Module,
    fn: Callable[[torch.Tensor], torch.Tensor],
    recurse: bool = True,
) -> nn.Module:
    before = dict(module._parameters)
    theirs(module, fn, recurse)
    for name, old in before.items():
        new = module._parameters[name]
        if old is not None and new is not None and new is not old:
            become(old, new)
            module._parameters[name] = old
    return module


def become(old: nn.Parameter, new: nn.Parameter) -> None:
    """Have the old parameter be the new one, and keep its class and attributes."""
    new.__class__ = old.__class__
    new.__dict__.update(old.__dict__)
    torch.utils.swap_tensors(old, new)
