"""torch.distributed.pipelining with a backend that compares messages.

Before its first step, a stage of torch 2.9 sends an int64 of shape () to its neighbours, which
receive a float32 of shape (1): to have NCCL connect. xla_cc raises CollectiveMismatchError for such
a message, and gloo ends the process.

On the pod, messages of schedules are nodes of the graphs of their two ranks, so that each rank's
step can be one program (docs/pod.md, "Messages").
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from torch_xla_cc import _C
from torch_xla_cc._runtime.patches import Changes, Patches
from torch_xla_cc._runtime.private import PipelineStageBase, pipeline_schedules


def _no_ops(self: object) -> list[Any]:
    return []


def _in_graph(theirs: Callable[..., list[Any]], *args: object, **options: object) -> list[Any]:
    """_batch_p2p: both ends of its messages are in it."""
    with _C.call_mode(messages=True):
        return theirs(*args, **options)


def _make(changes: Changes) -> None:
    changes.put(PipelineStageBase, "_get_init_p2p_neighbors_ops", _no_ops)
    changes.wrap(pipeline_schedules, "_batch_p2p", _in_graph)


_patches = Patches("adapters.pipelining", _make)


def install() -> None:
    """Have stages send nothing before the first step, on any backend."""
    _patches.install()


def uninstall() -> None:
    """Undo install."""
    _patches.uninstall()


def installed() -> contextlib.AbstractContextManager[None]:
    """install() for a block. It ends with the last block of all threads, or with uninstall()."""
    return _patches.installed()
