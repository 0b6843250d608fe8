"""Every step of a torch optimizer ends a step of the device.

Lazy tensors collect operations until something runs them. A loop that was written for an eager
device never does, so its graph would grow with each iteration, and be compiled each time.
"""

from __future__ import annotations

import threading
from typing import Any

import torch_xla
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

_lock = threading.Lock()
_hooks: list[Any] = []


def install() -> None:
    """Have `step()` of every torch.optim.Optimizer with XLA tensors end with torch_xla.sync()."""
    with _lock:
        if not _hooks:
            _hooks.append(register_optimizer_step_post_hook(_sync))


def uninstall() -> None:
    """Undo install."""
    with _lock:
        while _hooks:
            _hooks.pop().remove()


def _sync(optimizer: Optimizer, *_: object) -> None:
    tensors = (x for group in optimizer.param_groups for x in group["params"])
    if any(x.device.type == "xla" for x in tensors):
        torch_xla.sync()
