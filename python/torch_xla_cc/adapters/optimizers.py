"""Every step of a torch optimizer ends a step of the device.

Lazy tensors collect operations until something runs them. A loop that was written for an eager
device never does, so its graph would grow with each iteration, and be compiled each time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from torch_xla_cc._runtime.device_tensors import end_step
from torch_xla_cc._runtime.patches import Changes, Patches
from torch_xla_cc._runtime.private import zero_optimizer

# What torch's optimizers keep there: they read it in each step.
_ON_THE_CPU = {"step", "mu_product"}


def _make(changes: Changes) -> None:
    changes.after(register_optimizer_step_post_hook(end_step).remove)
    changes.wrap(zero_optimizer, "_broadcast_object", _broadcast_object)
    changes.wrap(zero_optimizer.ZeroRedundancyOptimizer, "load_state_dict", _load_state_dict)


def _broadcast_object(
    theirs: Callable[..., Any],
    obj: Any,  # noqa: ANN401
    src_rank: int,
    group: Any = None,  # noqa: ANN401 (WORLD, or a group)
    device: torch.device = torch.device("cpu"),  # noqa: B008 (as theirs)
) -> Any:  # noqa: ANN401
    """ZeroRedundancyOptimizer's; theirs loads by torch.load, which knows no XLA device.

    As copies on the CPU, where who asks for it puts it: tensors of another rank that is a thread
    would be on that one's device.
    """
    if device.type != "xla":
        return theirs(obj, src_rank, group, device)
    cpu = torch.device("cpu")
    box = [zero_optimizer._recursive_copy_to_device(obj, non_blocking=False, device=cpu)]
    dist.broadcast_object_list(box, src_rank, group, device)
    return box[0]


def _load_state_dict(theirs: Callable[..., None], self: Any, state_dict: dict[str, Any]) -> None:  # noqa: ANN401
    """ZeroRedundancyOptimizer's; it takes all states of no dimension for the number of the step.

    It leaves them on the CPU, also the momentum of a parameter of no dimension; and torch_xla's
    foreach operators of tensors of both kinds end the process (SIGSEGV).
    """
    theirs(self, state_dict)
    for parameter, states in self.optim.state.items():
        if parameter.device.type != "xla":
            continue
        for name, state in states.items():
            if isinstance(state, torch.Tensor) and name not in _ON_THE_CPU:
                states[name] = state.to(parameter.device)


_patches = Patches("adapters.optimizers", _make)


def install() -> None:
    """Have `step()` of every torch.optim.Optimizer with XLA tensors end with torch_xla.sync().

    And have ZeroRedundancyOptimizer.consolidate_state_dict work, which is refused by torch.load;
    its load_state_dict leaves states of parameters of no dimension on their device.
    """
    _patches.install()


def uninstall() -> None:
    """Undo install."""
    _patches.uninstall()


def installed() -> contextlib.AbstractContextManager[None]:
    """install() for a block. It ends with the last block of all threads, or with uninstall()."""
    return _patches.installed()
