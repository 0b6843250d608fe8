"""torch.load(..., map_location="cuda"), where that is an XLA device: torch has no storage there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torch_xla_cc._runtime import seeds
from torch_xla_cc.adapters import _modules

Load = Callable[..., Any]


def onto(theirs: Load, device: torch.device, is_named: Callable[[object], bool]) -> Load:
    """A torch.load which puts what is loaded on a device, if its `map_location` names that."""

    @functools.wraps(theirs)
    def load(f: Any, map_location: Any = None, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        own = isinstance(map_location, torch.device) and map_location.type == device.type
        if not own and not is_named(map_location):
            return theirs(f, map_location, *args, **options)
        loaded = theirs(f, "cpu", *args, **options)
        seeds.begin()
        return _Moves(device).moved(loaded)

    return load


def _is_count(key: object, value: object) -> bool:
    """Whether it is an optimizer's count of steps, which torch.optim has on the CPU and reads."""
    return key == "step" and isinstance(value, torch.Tensor) and value.dim() == 0


class _Moves:
    """Brings what was loaded to a device: tensors and modules in dicts, lists and tuples.

    Dicts and lists stay the same objects, as nobody else has them. What is one stays one, and so do
    weights that are tied.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._seen: dict[int, Any] = {}
        self._of_storage: dict[object, torch.Tensor] = {}

    def moved(self, one: Any) -> Any:  # noqa: ANN401 (what a file has)
        """It, there."""
        if id(one) not in self._seen:
            self._seen[id(one)] = one, self._moved(one)  # held: another would get its number
        return self._seen[id(one)][1]

    def _moved(self, one: Any) -> Any:  # noqa: ANN401
        if isinstance(one, torch.Tensor):
            return self._tensor(one)
        if isinstance(one, nn.Module):
            return one.to(self._device)
        if isinstance(one, dict):
            self._seen[id(one)] = one, one  # it may have itself in it
            for key, value in one.items():
                if not _is_count(key, value):
                    one[key] = self.moved(value)
        elif isinstance(one, list):
            self._seen[id(one)] = one, one
            one[:] = map(self.moved, one)
        elif isinstance(one, tuple):
            parts = [*map(self.moved, one)]
            if any(new is not old for new, old in zip(parts, one, strict=True)):
                return one._make(parts) if hasattr(one, "_make") else type(one)(parts)
        return one

    def _tensor(self, one: torch.Tensor) -> torch.Tensor:
        if one.device == self._device or one.layout != torch.strided:
            return one  # of sparse ones XLA has none
        new = self._values(one.detach())
        if isinstance(one, nn.Parameter):
            _modules.become(one, nn.Parameter(new, one.requires_grad))
            return one
        return new.detach().requires_grad_(one.requires_grad)

    def _values(self, one: torch.Tensor) -> torch.Tensor:
        if type(one) is not torch.Tensor or one.numel() == 0:  # of several, none has a place
            return one.to(self._device)
        place = one.untyped_storage().data_ptr(), one.storage_offset(), one.shape, one.stride()
        key = (*place, one.dtype)
        if key not in self._of_storage:
            self._of_storage[key] = one.to(self._device)
        return self._of_storage[key]
