"""The rows of docs/support.md: what of torch.distributed is called, each by itself.

As in calls.py, a row is a function of the rank and the device, and returns what it got, on the CPU:
the same on CPU tensors, which gloo serves, says what is right. Where gloo has no such call, the
function says so itself.

No row has a step: in the backend of TPU processes on threads, what comes from the host passes
xla:0, and rank 0 would have it in its step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import calls
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from calls import values

import torch_xla_cc.distributed

FLOAT = torch.float32
Row = Callable[[int, str], list[Any]]


def ours(device):
    """A group of all with one backend, that of the device: objects then travel by it."""
    config = dict(part.split(":") for part in dist.get_backend_config().split(","))
    return dist.new_group(backend=config["cpu" if device == "cpu" else "xla"])


def send(rank, device):
    """Rank 0 to 1, and 2 to 3."""
    x = values(rank, (5,), FLOAT, device)
    if rank % 2 == 0:
        dist.send(x, rank + 1)
    else:
        dist.recv(x, rank - 1)
    return [x.cpu()]


def reduce(rank, device):
    x = values(rank, (3, 4), FLOAT, device)
    dist.reduce(x, 0)
    return [x.cpu()] if rank == 0 else []  # gloo changes the others


def gather(rank, device):
    x = values(rank, (3, 4), FLOAT, device)
    outputs = [torch.zeros_like(x) for _ in range(dist.get_world_size())] if rank == 0 else None
    dist.gather(x, outputs, dst=0)
    return [output.cpu() for output in outputs or []]


def uneven_all_gather(rank, device):
    sources = [values(i, (i + 1, 3), FLOAT, "cpu") for i in range(dist.get_world_size())]
    if device == "cpu":
        return sources
    outputs = [torch.zeros_like(source, device=device) for source in sources]
    dist.all_gather(outputs, sources[rank].to(device))
    return [output.cpu() for output in outputs]


def uneven_reduce_scatter(rank, device):
    size = dist.get_world_size()
    parts = [[values(i + j, (j + 1, 2), FLOAT, "cpu") for j in range(size)] for i in range(size)]
    if device == "cpu":
        return [sum(parts[i][rank] for i in range(size))]
    output = torch.zeros(rank + 1, 2, device=device)
    dist.reduce_scatter(output, [part.to(device) for part in parts[rank]])
    return [output.cpu()]


def list_all_to_all(rank, device, uneven=False):
    """Part j of rank i has i + j elements, or 3."""
    size = dist.get_world_size()

    def part(source, to):
        return torch.full((source + to if uneven else 3,), 10.0 * source + to)

    received = [part(source, rank) for source in range(size)]
    if device == "cpu":
        return received
    outputs = [torch.zeros_like(x, device=device) for x in received]
    dist.all_to_all(outputs, [part(rank, to).to(device) for to in range(size)])
    return [output.cpu() for output in outputs]


def uneven_list_all_to_all(rank, device):
    return list_all_to_all(rank, device, uneven=True)


def barrier(rank, device):
    dist.barrier(group=ours(device))
    return []


def monitored_barrier(rank, device):
    torch_xla_cc.distributed.monitored_barrier(ours(device))
    return []


def _two(rank, device):
    return [values(rank, (3,), FLOAT, device), values(rank, (2, 2), FLOAT, device)]


def _whole(rank, device):
    return [x.repeat(dist.get_world_size(), *[1] * (x.dim() - 1)) for x in _two(rank, device)]


def coalesced_all_reduce(rank, device):
    xs = _two(rank, device)
    with dist._coalescing_manager():
        for x in xs:
            dist.all_reduce(x)
    return [x.cpu() for x in xs]


def _coalesced(call, outputs, inputs):
    with dist._coalescing_manager():
        for output, x in zip(outputs, inputs, strict=True):
            call(output, x)
    return [output.cpu() for output in outputs]


def coalesced_all_gather(rank, device):
    return _coalesced(dist.all_gather_into_tensor, _whole(0, device), _two(rank, device))


def coalesced_reduce_scatter(rank, device):
    return _coalesced(dist.reduce_scatter_tensor, _two(0, device), _whole(rank, device))


def all_gather_object(rank, device):
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, {"rank": rank, "text": "x" * rank}, group=ours(device))
    return found


def gather_object(rank, device):
    found = [None] * dist.get_world_size() if rank == 0 else None
    dist.gather_object("x" * rank, found, dst=0, group=ours(device))
    return found or []


def broadcast_object_list(rank, device):
    objects = [f"from {rank}", rank]
    dist.broadcast_object_list(objects, 0, group=ours(device))
    return objects


def scatter_object_list(rank, device):
    found = [None]
    objects = ["x" * i for i in range(dist.get_world_size())]
    dist.scatter_object_list(found, objects if rank == 0 else None, src=0, group=ours(device))
    return found


def send_object_list(rank, device):
    objects = [f"from {rank}"]
    if rank % 2 == 0:
        dist.send_object_list(objects, rank + 1, group=ours(device))
    else:
        dist.recv_object_list(objects, rank - 1, group=ours(device))
    return objects


def in_graph(row: Row) -> Row:
    """All ranks make the same calls, and say so."""

    def inside(rank: int, device: str) -> list[Any]:
        with torch_xla_cc.distributed.in_graph():
            return row(rank, device)

    return inside


def _functional(call: Callable[[torch.Tensor, Any], Any]) -> Callable[[int, str], list[Any]]:
    def row(rank, device):
        found = call(values(rank, (4, 3), FLOAT, device), dist.group.WORLD)
        found = found if isinstance(found, list) else [found]
        return [functional.wait_tensor(x).cpu() for x in found]

    return row


def functional_split_all_to_all(rank, device):
    """Rank i sends (i + j) % 3 rows to rank j."""
    size = dist.get_world_size()
    sent = [(rank + to) % 3 for to in range(size)]
    x = values(rank, (sum(sent), 2), FLOAT, device)
    found = functional.all_to_all_single(x, sent, sent, dist.group.WORLD)  # it is symmetric
    return [functional.wait_tensor(found).cpu()]


def new_group(rank, device):
    group = dist.new_group([0, 2])
    return [dist.get_process_group_ranks(group) if rank in (0, 2) else None]


def split_group(rank, device):
    group = torch_xla_cc.distributed.split_group(ours("xla"), [[3, 1], [2]])
    return [dist.get_process_group_ranks(group) if rank > 0 else group]


def halves(rank, device):
    groups = [dist.new_group(list(range(i, dist.get_world_size(), 2))) for i in range(2)]
    return calls.all_reduce(rank, device, group=groups[rank % 2])


def all_but_last(rank, device):
    members = list(range(dist.get_world_size() - 1))
    group = dist.new_group(members)
    return calls.all_reduce(rank, device, group=group) if rank in members else []


SECTIONS: dict[str, dict[str, Row]] = {
    "The calls of PyTorch's own table": {
        "send": send,
        "recv": send,
        "broadcast": calls.broadcast,
        "all_reduce": calls.all_reduce,
        "reduce": reduce,
        "all_gather": calls.all_gather,
        "gather": gather,
        "scatter": calls.scatter,
        "reduce_scatter": calls.reduce_scatter,
        "all_to_all": list_all_to_all,
        "barrier": barrier,
    },
    "Other forms": {
        "isend, irecv, with tags": calls.send_and_recv,
        "recv from any source": calls.from_anyone,
        "batch_isend_irecv": calls.batch,
        "batch_isend_irecv, in_graph()": in_graph(calls.batch),
        "all_gather, sizes differ": uneven_all_gather,
        "all_gather, chunks of one buffer": calls.all_gather_into_views,
        "all_gather_into_tensor": calls.all_gather_into_tensor,
        "reduce_scatter, sizes differ": uneven_reduce_scatter,
        "reduce_scatter_tensor": calls.reduce_scatter_tensor,
        "all_to_all, sizes differ": uneven_list_all_to_all,
        "all_to_all_single": calls.all_to_all_single,
        "all_to_all_single, split sizes": calls.all_to_all_split,
        "all_to_all_single, split sizes, in_graph()": in_graph(calls.all_to_all_split),
        "monitored_barrier": monitored_barrier,
    },
    "Coalesced (`_coalescing_manager`)": {
        "all_reduce, coalesced": coalesced_all_reduce,
        "all_gather_into_tensor, coalesced": coalesced_all_gather,
        "reduce_scatter_tensor, coalesced": coalesced_reduce_scatter,
    },
    "Objects": {
        "all_gather_object": all_gather_object,
        "gather_object": gather_object,
        "broadcast_object_list": broadcast_object_list,
        "scatter_object_list": scatter_object_list,
        "send_object_list, recv_object_list": send_object_list,
    },
    "Functional collectives": {
        "functional broadcast": _functional(lambda x, group: functional.broadcast(x, 1, group)),
        "functional all_reduce": _functional(
            lambda x, group: functional.all_reduce(x, "sum", group)
        ),
        "functional all_reduce_coalesced": _functional(
            lambda x, group: functional.all_reduce_coalesced([x, x + 1], "sum", group)
        ),
        "functional all_gather_tensor": _functional(
            lambda x, group: functional.all_gather_tensor(x, 0, group)
        ),
        "functional all_gather_into_tensor_coalesced": _functional(
            lambda x, group: functional.all_gather_into_tensor_coalesced([x, x + 1], group)
        ),
        "functional reduce_scatter_tensor": _functional(
            lambda x, group: functional.reduce_scatter_tensor(x, "sum", 0, group)
        ),
        "functional reduce_scatter_tensor_coalesced": _functional(
            lambda x, group: functional.reduce_scatter_tensor_coalesced(
                [x, x + 1], "sum", [0, 0], group
            )
        ),
        "functional all_to_all_single": _functional(
            lambda x, group: functional.all_to_all_single(x, None, None, group)
        ),
        "functional all_to_all_single, split sizes": functional_split_all_to_all,
    },
    "Groups": {
        "new_group": new_group,
        "split_group": split_group,
        "all_reduce in groups of every other rank": halves,
        "all_reduce in a group of all ranks but one": all_but_last,
    },
}
ROWS: dict[str, Row] = {label: row for rows in SECTIONS.values() for label, row in rows.items()}
