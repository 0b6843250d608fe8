"""Eager mode of torch_xla in a launch, where operations stay lazy all the same.

It would run each of them by itself, and ranks on threads have to meet before a collective runs.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator

from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from torch_xla_cc._runtime.device_tensors import end_step
from torch_xla_cc._runtime.patches import changes
from torch_xla_cc._runtime.private import XLAC

_SAYS = (
    "eager mode of torch_xla is on. In torch_xla_cc.launch operations run lazily all the same: "
    "ranks on threads have to meet before a collective runs. Steps of optimizers end with "
    "torch_xla.sync(); call it after steps that have none"
)


class _Mode(threading.local):
    """That of this thread, if it has been set there."""

    eager: bool | None = None


@contextlib.contextmanager
def stays_lazy() -> Iterator[None]:
    """Around a launch of ranks that are threads."""
    before = XLAC._get_use_eager_mode()
    mode = _Mode()

    def get() -> bool:
        return before if mode.eager is None else mode.eager

    def put(eager: bool) -> None:
        if eager:
            warnings.warn(_SAYS, stacklevel=3)
        mode.eager = eager

    def stepped(optimizer: Optimizer, *_: object) -> None:
        if get():
            end_step(optimizer)

    with changes("torch_xla_cc.launch") as made:
        if before:
            warnings.warn(_SAYS, stacklevel=2)
            made.after(XLAC._set_use_eager_mode, before)
            XLAC._set_use_eager_mode(False)
        made.put(XLAC, "_get_use_eager_mode", get)
        made.put(XLAC, "_set_use_eager_mode", put)
        made.after(register_optimizer_step_post_hook(stepped).remove)
        yield
