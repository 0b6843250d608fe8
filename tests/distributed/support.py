"""What becomes of a call of torch.distributed, as seen: its nodes, and what the backend was asked.

Ranks are threads, processes, processes of a pod, or threads in another way: with the backend that
processes on TPU and GPU get, whose calls are nodes where all ranks have the same, and go through
the host beside them. That runs on CPU devices as well, since they are in one process. So which of
its calls are nodes is seen, and not said.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import as_tpu
import pods
import processes
import torch
import torch.distributed as dist
import torch_xla
import worlds
from rows import ROWS

import torch_xla_cc
import torch_xla_cc.distributed
from torch_xla_cc._threads.worlds import this_rank

RANKS = 4
WHERE = {
    "threads": (worlds.run, torch_xla_cc.distributed.BACKEND),
    "processes": (processes.run, torch_xla_cc.distributed.BACKEND),
    "pod": (pods.run, torch_xla_cc.distributed.BACKEND),
    "in the graph": (worlds.run, as_tpu.BACKEND),
}


@dataclasses.dataclass(frozen=True)
class Node:
    """A collective in the graph, and what it was lowered to on CPU threads."""

    op: str
    name: str  # with its attributes
    operands: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    rule: str
    opcodes: tuple[str, ...]


@dataclasses.dataclass
class Seen:
    """On one rank."""

    right: bool  # the results are those of gloo
    asked: list[str]  # the calls of the backend, of the flight recorder
    nodes: list[Node]


def _start(backend: str) -> None:
    if backend == as_tpu.BACKEND:
        as_tpu.init()
    elif not dist.is_initialized():
        dist.init_process_group(f"cpu:gloo,xla:{backend}")


def _together() -> None:
    dist.all_reduce(torch.zeros(1))  # by gloo: our backend does not see it


def _same(x: Any, y: Any) -> bool:
    if isinstance(x, torch.Tensor):
        return x.dtype == y.dtype and torch.equal(x, y)
    return bool(x == y)


def look(rank: int, backend: str, label: str) -> tuple[Seen, list[tuple[int, Node]]]:
    """On a rank: what it saw, and nodes with their ranks. Of threads one sees those of all."""
    # Two ranks would register at a time, which is harmless, and start at a time, as they must.
    _start(backend)
    row = ROWS[label]
    seen = Seen(right=False, asked=[], nodes=[])
    wanted = row(rank, "cpu")
    with contextlib.ExitStack() as stack:
        sees_all = this_rank() in (None, 0)
        calls = stack.enter_context(torch_xla_cc.record()) if sees_all else []
        _together()
        before = len(torch_xla_cc.distributed.flight_recorder())
        found = row(rank, torch_xla.device())
        seen.right = len(found) == len(wanted) and all(map(_same, found, wanted))
        _together()
    asked = torch_xla_cc.distributed.flight_recorder()[before:]
    seen.asked = [call["call"].partition("(")[0] for call in asked]
    nodes = [
        Node(call.op, call.name, call.operands, call.groups, call.rule, call.opcodes)
        for call in calls
    ]
    owners = [rank if this_rank() is None else call.rank for call in calls]
    return seen, list(zip(owners, nodes, strict=True))


def observe(where: str, label: str) -> list[Seen]:
    """What the ranks saw, by rank."""
    run, backend = WHERE[where]
    found = run(RANKS, look, backend, label, timeout_s=60.0)
    by_rank = [seen for seen, _ in found]
    for _, nodes in found:
        for rank, node in nodes:
            by_rank[rank].nodes.append(node)
    return by_rank
