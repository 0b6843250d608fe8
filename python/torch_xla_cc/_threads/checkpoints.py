"""torch_xla's activation checkpoints on ranks that are threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from torch_xla.utils import checkpoint

from torch_xla_cc._runtime.patches import changes


class _Thread(threading.local):
    in_backward = False


_thread = _Thread()


class _Status(checkpoint.CheckpointStatus):
    @property
    def in_chkpt_bwd(self) -> bool:
        return _thread.in_backward

    @in_chkpt_bwd.setter
    def in_chkpt_bwd(self, value: bool) -> None:
        _thread.in_backward = value


@contextlib.contextmanager
def checkpoints_on_threads() -> Iterator[None]:
    """Around a launch: whether a checkpoint is computed again is kept by thread.

    In torch_xla it is of the process. XlaFullyShardedDataParallel does not gather parameters
    meanwhile, so ranks that are not there at the same time would call different collectives.
    """
    with changes("torch_xla_cc.launch") as made:
        made.put(checkpoint.chkpt_status, "__class__", _Status)  # others have a reference to it
        yield
