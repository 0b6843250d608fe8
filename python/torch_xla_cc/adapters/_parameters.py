"""What adapters do with the parameters of a model."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def move(parameters: Iterable[torch.nn.Parameter], device: torch.device) -> None:
    """Have these be tensors of the device, and stay the objects that they are.

    Module.to makes new ones: a parameter on the host cannot be given data that is elsewhere.
    """
    for parameter in parameters:
        if parameter.device.type != device.type:
            there = torch.nn.Parameter(parameter.detach().to(device), parameter.requires_grad)
            become(parameter, there)


def become(old: torch.nn.Parameter, new: torch.nn.Parameter) -> None:
    """Have the old parameter be the new one, and keep its class and attributes."""
    new.__class__ = old.__class__
    new.__dict__.update(old.__dict__)
    torch.utils.swap_tensors(old, new)
