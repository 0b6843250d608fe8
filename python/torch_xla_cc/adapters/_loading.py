"""torch.load(..., map_location="cuda"), where that is an XLA device: torch has no storage there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torch_xla_cc._runtime.private import pytree

Load = Callable[..., Any]


def onto(theirs: Load, device: torch.device, is_named: Callable[[object], bool]) -> Load:
    """A torch.load which puts what is loaded on a device, if its `map_location` names that."""

    @functools.wraps(theirs)
    def load(f: Any, map_location: Any = None, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        own = isinstance(map_location, torch.device) and map_location.type == device.type
        if not own and not is_named(map_location):
            return theirs(f, map_location, *args, **options)
        return moved(theirs(f, "cpu", *args, **options), device)

    return load


def moved(loaded: Any, device: torch.device) -> Any:  # noqa: ANN401 (what a file has)
    """The tensors and modules in dicts, lists and tuples, there; what is one stays one."""
    places: dict[int, Any] = {}

    def move(one: Any) -> Any:  # noqa: ANN401
        if not isinstance(one, (torch.Tensor, nn.Module)):
            return one
        if id(one) not in places:
            places[id(one)] = one.to(device)
        return places[id(one)]

    return pytree.tree_map(move, loaded)
