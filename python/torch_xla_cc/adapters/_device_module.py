"""torch.xla, the module of XLA devices.

torch asks for it by the name of a tensor's device: meshes, fully_shard, and torch.utils.checkpoint,
of any model that computes layers again in the backward pass.
"""

from __future__ import annotations

import sys

import torch

from torch_xla_cc._runtime.patches import Changes, Patches
from torch_xla_cc._runtime.private import register_device_module
from torch_xla_cc.adapters import _xla_device


def _forget_module() -> None:
    delattr(torch, "xla")
    del sys.modules["torch.xla"]
    torch.get_device_module.cache_clear()


def _make(changes: Changes) -> None:
    register_device_module("xla", _xla_device)
    torch.get_device_module.cache_clear()
    changes.after(_forget_module)


patches = Patches("adapters._device_module", _make)
