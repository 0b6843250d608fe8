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

import torch

from torch_xla_cc import _C
from torch_xla_cc._runtime.device import shares_memory
from torch_xla_cc._runtime.patches import Changes, Patches
from torch_xla_cc._runtime.private import PipelineStageBase, pipeline_schedules


def _no_ops(self: object) -> list[Any]:
    return []


def run_messages() -> None:
    """Run what a pass left pending, if messages are in it: a stage that only sends never waits."""
    if shares_memory():
        _C.run_pending_before_waiting()


def _in_graph(theirs: Callable[..., list[Any]], *args: object, **options: object) -> list[Any]:
    """_batch_p2p: both ends of its messages are in it."""
    with _C.call_mode(messages=True):
        return theirs(*args, **options)


def _step(
    theirs: Callable[..., Any],
    schedule: Any,  # noqa: ANN401 (a PipelineSchedule)
    *args: object,
    **options: object,
) -> Any:  # noqa: ANN401
    """Its step()."""
    run_messages()
    result = theirs(schedule, *args, **options)
    if not torch.is_grad_enabled():  # no optimizer's step comes
        run_messages()
    return result


def _eval(
    theirs: Callable[..., Any],
    schedule: Any,  # noqa: ANN401 (as above)
    *args: object,
    **options: object,
) -> Any:  # noqa: ANN401
    """Its eval(), which calls step()."""
    result = theirs(schedule, *args, **options)
    run_messages()
    return result


def _make(changes: Changes) -> None:
    changes.put(PipelineStageBase, "_get_init_p2p_neighbors_ops", _no_ops)
    changes.wrap(pipeline_schedules, "_batch_p2p", _in_graph)
    for kind in (
        pipeline_schedules.PipelineScheduleSingle,
        pipeline_schedules.PipelineScheduleMulti,
    ):
        changes.wrap(kind, "step", _step)
        changes.wrap(kind, "eval", _eval)


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
