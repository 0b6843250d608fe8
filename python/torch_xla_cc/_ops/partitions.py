"""Which tensors are shards, in torch_xla's SPMD mode: those in a region that is sharded by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from torch_xla_cc._runtime.private import XLAC

if TYPE_CHECKING:
    from torch_xla_cc._hlo.instruction import Instruction

_ENTER, _LEAVE = "SPMDFullToShardShape", "SPMDShardToFullShape"
_MOST_GRAPHS = 10_000

_known: dict[bytes, bool] = {}  # by the hash of a graph; a step's graphs come again in the next


def is_manual(tensor: torch.Tensor) -> bool:
    """Whether a tensor is made of what enable_manual_sharding has returned, in the same graph.

    torch_xla does not say, other than in the HLO that the tensor's graph becomes.
    """
    if "manual" in XLAC._get_xla_sharding_spec(tensor):
        return True
    graph = XLAC._get_graph_hash([tensor])
    if graph not in _known:
        if len(_known) >= _MOST_GRAPHS:
            _known.clear()
        _known[graph] = _made_of_shards(XLAC._get_xla_tensors_hlo([tensor]))
    return _known[graph]


def _made_of_shards(hlo: str) -> bool:
    from torch_xla_cc._hlo.text import Reader  # not before it is needed
    from torch_xla_cc._hlo.walk import reached

    entry = next(one for one in Reader(hlo.splitlines()).computations() if one.is_entry)

    def operands(instruction: Instruction) -> list[Instruction]:
        outside = instruction.custom_call_target in (_ENTER, _LEAVE)
        return [] if outside else list(instruction.operands)

    root = [] if entry.root is None else [entry.root]
    return any(one.custom_call_target == _ENTER for one in reached(root, operands))
