"""What a rank of a pod has pending runs though it neither reads nor steps.

Calls of torch.distributed stay in its graph, and with other backends they would be under way. So
they run at the end of an optimizer's step, in scripts that do not step by torch_xla.sync(); and
where another rank waits for them, while this one waits for something that is not in its graph.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from torch_xla_cc import _C
from torch_xla_cc._runtime import chains
from torch_xla_cc._runtime.device_tensors import is_step_of_another
from torch_xla_cc._threads import read_hooks

_LOOK_MS = 1000
_QUIET_MS = 200  # for which a thread that traces has something to do with a tensor

_synced: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()


@functools.cache
def begin() -> None:
    """From the first group of a pod on."""
    register_optimizer_step_post_hook(_after_step)
    atexit.register(_at_end, os.getpid())
    rank = read_hooks.default_rank()
    threading.Thread(target=_serve, args=(rank, os.getpid()), daemon=True).start()


def limit(members: list[int], milliseconds: int) -> None:
    """How long a rank may wait in a collective of a group."""
    array = (ctypes.c_int64 * len(members))(*members)
    _plugin().torch_xla_cc_pod_limit(
        array, ctypes.c_int64(len(members)), ctypes.c_int64(milliseconds)
    )


def _plugin() -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(_C.__file__).with_name("libpod.so")))


def _after_step(optimizer: torch.optim.Optimizer, _: Any, __: Any) -> None:  # noqa: ANN401
    """An optimizer has stepped: that is a step of the script too, if it has no other.

    Of those that step others inside of their own step the outermost counts.
    """
    if is_step_of_another():
        return
    syncs = read_hooks.syncs()
    if _synced.get(optimizer, syncs) == syncs:
        read_hooks.run_pending(read_hooks.default_rank())
    _synced[optimizer] = syncs


def _at_end(pid: int) -> None:
    """The script ends well: what it has called, others may wait for."""
    if os.getpid() == pid and getattr(sys, "last_value", None) is None:
        with contextlib.suppress(RuntimeError):  # all is lost: who reads is told
            read_hooks.run_pending(read_hooks.default_rank())


def _serve(rank: int, pid: int) -> None:
    wanted = _plugin().torch_xla_cc_pod_wanted
    wanted.argtypes, wanted.restype = (ctypes.c_int64, ctypes.c_int64), ctypes.c_int64
    seen = 0
    while os.getpid() == pid:
        times = wanted(seen, _LOOK_MS)
        if times != seen and chains.is_pending(rank, ()):
            _run_for_others(rank)
        seen = times


def _run_for_others(rank: int) -> None:
    """Run it on this thread, unless another has to do with tensors and so will do it itself."""
    with _C.op_gate() as gate:
        if gate.is_quiet(_QUIET_MS) and chains.is_pending(rank, ()):
            read_hooks.run_all(rank)
