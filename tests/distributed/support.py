"""What becomes of a call of torch.distributed, as seen: its nodes, and what the backend was asked.

Ranks are threads, processes, or threads in a third way: with the backend that processes on TPU and
GPU get, whose calls are nodes where all ranks have the same, and go through the host beside them.
That runs on CPU devices as well, since they are in one process. So which of its calls are nodes is
seen, and not said.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import processes
import torch
import torch.distributed as dist
import torch_xla
import worlds
from rows import ROWS
from torch._C import _distributed_c10d as c10d

import torch_xla_cc
import torch_xla_cc.distributed
from torch_xla_cc import _C
from torch_xla_cc._thread_worlds import this_rank

RANKS = 4
IN_GRAPH = "xla_cc_of_tpu"  # the backend of processes on TPU and GPU
WHERE = {
    "threads": (worlds.run, torch_xla_cc.distributed.BACKEND),
    "processes": (processes.run, torch_xla_cc.distributed.BACKEND),
    "in the graph": (worlds.run, IN_GRAPH),
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
    refused: str  # why torch.distributed does not take it
    asked: list[str]  # the calls of the backend, of the flight recorder
    nodes: list[Node]


def _create(options: Any, _: Any = None) -> Any:
    """As torch_xla_cc.distributed for a process on TPU or GPU."""
    rank, size = options.group_rank, options.group_size
    members = list(options.global_ranks_in_group) or list(range(size))
    world = dist.get_world_size() if dist.is_initialized() else size
    group = _C.Group(options.group_id, members, world, rank)
    store = c10d.PrefixStore(IN_GRAPH, options.store)
    gloo = c10d.ProcessGroupGloo(c10d.PrefixStore("gloo", store), rank, size, options.timeout)
    milliseconds = int(options.timeout.total_seconds() * 1000)
    return _C.process_backend(gloo, store, 1, True, group, milliseconds)


def _start(backend: str) -> None:
    if IN_GRAPH.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(IN_GRAPH, _create, extended_api=True, devices=["xla"])
    if not dist.is_initialized():
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
    seen = Seen(right=False, refused="", asked=[], nodes=[])
    wanted: list[Any] = []
    with contextlib.suppress(ValueError):  # gloo has it not
        wanted = row(rank, "cpu")
    with contextlib.ExitStack() as stack:
        sees_all = this_rank() in (None, 0)
        calls = stack.enter_context(torch_xla_cc.record()) if sees_all else []
        _together()
        before = len(torch_xla_cc.distributed.flight_recorder())
        try:
            found = row(rank, torch_xla.device())
            seen.right = len(found) == len(wanted) and all(map(_same, found, wanted))
        except ValueError as error:
            seen.refused = str(error)
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
