"""Every step of a torch optimizer ends a step of the device.

Lazy tensors collect operations until something runs them. A loop that was written for an eager
device never does, so its graph would grow with each iteration, and be compiled each time.
"""

from __future__ import annotations

import contextlib

from torch.optim.optimizer import register_optimizer_step_post_hook

from torch_xla_cc._runtime.device_tensors import end_step
from torch_xla_cc._runtime.patches import Changes, Patches


def _make(changes: Changes) -> None:
    changes.after(register_optimizer_step_post_hook(end_step).remove)


_patches = Patches("adapters.optimizers", _make)


def install() -> None:
    """Have `step()` of every torch.optim.Optimizer with XLA tensors end with torch_xla.sync()."""
    _patches.install()


def uninstall() -> None:
    """Undo install."""
    _patches.uninstall()


def installed() -> contextlib.AbstractContextManager[None]:
    """install() for a block. It ends with the last block of all threads, or with uninstall()."""
    return _patches.installed()
