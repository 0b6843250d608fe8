"""torch.distributed.pipelining with a backend that compares messages.

Before its first step, a stage of torch 2.9 sends an int64 of shape () to its neighbours, which
receive a float32 of shape (1): to have NCCL connect. xla_cc raises CollectiveMismatchError for such
a message, and gloo ends the process.
"""

from __future__ import annotations

from typing import Any

from torch.distributed.pipelining.stage import _PipelineStageBase

_ops_to_connect = _PipelineStageBase._get_init_p2p_neighbors_ops


def _no_ops(self: object) -> list[Any]:
    return []


def install() -> None:
    """Have stages send nothing before the first step, on any backend."""
    _PipelineStageBase._get_init_p2p_neighbors_ops = _no_ops  # type: ignore[method-assign]


def uninstall() -> None:
    """Undo install."""
    _PipelineStageBase._get_init_p2p_neighbors_ops = _ops_to_connect  # type: ignore[method-assign]
