"""Graphs that torch.compile has captured, and the collectives in them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

import torch

from torch_xla_cc import _C
from torch_xla_cc._runtime import chains
from torch_xla_cc._runtime.private import XLAC


class Captured(bytes):
    """The hash of one, and the collectives in it.

    They are not found by the hash: calls in groups of the same ranks make the same graph.
    """

    program: _C.Program | None = None
    has_collectives = False  # where ranks do not meet


class _Thread(threading.local):
    last: Captured | None = None


_thread = _Thread()


def last(graph_hash: bytes) -> Captured:
    """What is compiled next is what has this hash."""
    _thread.last = Captured(graph_hash)
    return _thread.last


def taken() -> Captured | None:
    """The graph that was hashed last; it is that once."""
    graph, _thread.last = _thread.last, None
    return graph


def compiled(
    graph: Captured | None,
    tensors: list[torch.Tensor],
    rank: int,
    hashed: Callable[[list[torch.Tensor]], bytes],
    *,
    ranks_meet: bool,
) -> None:
    """The graph, which ends in `tensors`, has been compiled."""
    if graph is not None and not ranks_meet:
        graph.has_collectives = chains.is_in(tensors)
    if not _C.ranks_pending(rank):
        return
    nodes = re.findall(r"^ *%\d+ = .*? xla_cc::\w+\(", XLAC._get_xla_tensors_text(tensors), re.M)
    if graph is None or graph != hashed(tensors):
        raise RuntimeError(
            "torch.compile: a graph with collectives was compiled that torch_xla's bridge has not "
            "hashed just before, so it cannot be told what it is run by. Compile it with "
            'backend="openxla"'
        )
    graph.program = _C.traced_program(rank, len(nodes))
