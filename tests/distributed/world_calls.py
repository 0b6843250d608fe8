"""The calls of world_programs.py on a rank, and in NumPy what they give.

An operand is a function of the call's event, its place there and the rank, so that a result says
which calls met.
"""

from __future__ import annotations

import threading
from typing import Any

import ml_dtypes
import numpy as np
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch_xla
from world_programs import ANYONE, Call

import torch_xla_cc.distributed

Array = np.ndarray[Any, Any]
_STACKED = ("all_gather_into_tensor", "functional all_gather", "functional all_to_all")
_STACKED += ("functional reduce_scatter",)
_NUMPY = {"bfloat16": np.dtype(ml_dtypes.bfloat16)}


def operand(call: Call, event: int, rank: int, part: int = 0, shape: Any = None) -> Array:
    """1 to 3: sums and products of a few fit into all types."""
    shape = call.shape if shape is None else shape
    count = int(np.prod(shape))
    values = (np.arange(count) * 7 + event * 5 + rank * 2 + part * 3) % 3 + 1
    return values.reshape(shape).astype(_NUMPY.get(call.dtype, call.dtype))


def rows(call: Call, source: int, to: int) -> int:
    """How many rows rank `source` of the group sends rank `to` in an uneven all_to_all."""
    return (call.splits * source + to + call.splits) % 3


def _reduced(arrays: list[Array], kind: str) -> Array:
    if kind == "AVG":
        return sum(arrays[1:], arrays[0]) / np.asarray(len(arrays), arrays[0].dtype)
    function = {"SUM": np.add, "MAX": np.maximum, "MIN": np.minimum, "PRODUCT": np.multiply}[kind]
    result = arrays[0]
    for array in arrays[1:]:
        result = function(result, array)
    return result


def _stacked(call: Call, event: int, rank: int, size: int) -> list[Array]:
    return [operand(call, event, rank, part) for part in range(size)]


def said(call: Call, event: int, rank: int) -> str:
    return f"{event:03d} of {rank}, {call.tag:04d}"


def expected(call: Call, met: list[tuple[int, int, Call]], own: int) -> list[Any]:
    """What rank `own` of the group gets; `met` has of each its world's rank, event and call."""
    mine = [operand(its, event, rank) for rank, event, its in met]
    op = call.op.removeprefix("functional ").removeprefix("coalesced_")
    size = len(met)
    if op in ("all_reduce", "reduce"):
        value = _reduced(mine, call.kind)
        results = [value if op == "all_reduce" or own == call.root else mine[own]]
        if call.op == "coalesced_all_reduce":
            results.append(_reduced([operand(c, e, r, 1) for r, e, c in met], call.kind))
        return results
    if op == "broadcast":
        return [mine[call.root]]
    if op == "all_gather" and call.op == "coalesced_all_gather":
        more = [operand(c, e, r, 1) for r, e, c in met]
        return [np.concatenate(mine), np.concatenate(more)]
    if op in ("all_gather", "all_gather_into_tensor", "gather"):
        return mine if op != "gather" or own == call.root else []
    if op == "scatter":
        rank, event, its = met[call.root]
        return [operand(its, event, rank, own)]
    if op in ("reduce_scatter", "reduce_scatter_tensor"):
        parts = [operand(c, e, r, own) for r, e, c in met]
        results = [_reduced(parts, call.kind)]
        if call.op == "coalesced_reduce_scatter":
            results.append(_reduced([operand(c, e, r, own + 1) for r, e, c in met], call.kind))
        return results
    if (op == "all_to_all_single" and not call.splits) or call.op == "functional all_to_all":
        return [operand(c, e, r, own) for r, e, c in met]
    if op in ("all_to_all_single", "all_to_all"):
        return [operand(c, e, r, own, (rows(c, i, own), 2)) for i, (r, e, c) in enumerate(met)]
    if op in ("all_gather_object", "gather_object"):
        texts = [said(c, e, r) for r, e, c in met]
        return texts if op == "all_gather_object" or own == call.root else []
    if op == "broadcast_object_list":
        rank, event, its = met[call.root]
        return [said(its, event, rank)]
    if op == "scatter_object_list":
        rank, event, its = met[call.root]
        return [said(its, event, rank) + f" to {own}"]
    if op == ANYONE:
        others = [
            (rank, operand(its, event, rank)) for rank, event, its in met if rank != met[own][0]
        ]
        return [one for rank, x in others for one in (str(rank), x)] if own == call.root else []
    if op in ("messages", "batch", "objects sent"):
        rank, event, its = met[(own - call.peer) % size]
        return [said(its, event, rank)] if op == "objects sent" else [operand(its, event, rank)]
    return []


def put(array: Array) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.astype(np.float32)).bfloat16().to(torch_xla.device())
    return torch.from_numpy(array).to(torch_xla.device())


def take(x: Any) -> Any:
    if not isinstance(x, torch.Tensor):
        return x
    x = x.cpu()
    return (x.float() if x.dtype == torch.bfloat16 else x).numpy()


def differs(got: list[Any], wanted: list[Any]) -> bool:
    return len(got) != len(wanted) or any(map(_differ, got, wanted))


def _differ(x: Any, y: Any) -> bool:
    if isinstance(y, str):
        return bool(x != y)
    if not isinstance(x, np.ndarray) or x.shape != y.shape:
        return True
    return not np.allclose(x.astype(np.float64), y.astype(np.float64), rtol=1e-6)


class Member:
    """A rank in a group. `plain`: its operands are data, and nothing is pending before a call."""

    def __init__(self, group: Any, members: list[int], rank: int, plain: bool) -> None:
        self.group = group
        self.plain = plain
        self.members = members
        self.rank = rank
        self.own = members.index(rank)
        self.size = len(members)

    def start(self, call: Call, event: int) -> tuple[list[Any], list[Any]]:
        """The works and the tensors or objects that will have the results."""
        op, g, rank = call.op, self.group, self.rank
        if call.is_message():
            return self._messages(call, event)
        if op == ANYONE:
            return [], self._from_anyone(call, event)
        if op in ("barrier", "monitored_barrier"):
            return self._barrier(call)
        if op.endswith(("_object", "_object_list")):
            return [], self._objects(call, event)
        if op.startswith("coalesced"):
            return self._coalesced(call, event)
        if op.startswith("functional"):
            return [], self._functional(call, event)
        root = self.members[call.root % self.size]
        options: dict[str, Any] = {"group": g, "async_op": call.how != "at once"}
        kind = getattr(dist.ReduceOp, call.kind)
        x = put(operand(call, event, rank))
        outputs: Any = [self._zeros(call) for _ in range(self.size)]

        def parts() -> list[torch.Tensor]:
            return [put(x) for x in _stacked(call, event, rank, self.size)]

        if op == "all_reduce":
            work, found = dist.all_reduce(x, kind, **options), [x]
        elif op == "reduce":
            work, found = dist.reduce(x, root, kind, **options), [x]
        elif op == "broadcast":
            work, found = dist.broadcast(x, root, **options), [x]
        elif op == "all_gather":
            work, found = dist.all_gather(outputs, x, **options), outputs
        elif op == "all_gather_into_tensor":
            whole = self._zeros(call, self.size)
            work = dist.all_gather_into_tensor(whole, x, **options)
            found = [whole]
        elif op == "gather":
            found = outputs if self.own == call.root else []
            work = dist.gather(x, found or None, root, **options)
        elif op == "scatter":
            x = self._zeros(call)
            inputs = parts() if self.own == call.root else None
            work, found = dist.scatter(x, inputs, root, **options), [x]
        elif op == "reduce_scatter":
            x = self._zeros(call)
            work, found = dist.reduce_scatter(x, parts(), kind, **options), [x]
        elif op == "reduce_scatter_tensor":
            x = self._zeros(call)
            stacked = self._put_stacked(call, event)
            work = dist.reduce_scatter_tensor(x, stacked, kind, **options)
            found = [x]
        elif op == "all_to_all_single" and not call.splits:
            whole = self._zeros(call, self.size)
            work = dist.all_to_all_single(whole, self._put_stacked(call, event), **options)
            found = [whole]
        else:
            return self._exchange(call, event, options)
        return [work], found

    def _zeros(self, call: Call, *before: int) -> torch.Tensor:
        """On the device, as data or as something to be computed."""
        if self.plain:
            return put(np.zeros((*before, *call.shape), _NUMPY.get(call.dtype, call.dtype)))
        dtype, device = getattr(torch, call.dtype), torch_xla.device()
        return torch.zeros((*before, *call.shape), dtype=dtype, device=device)

    def _put_stacked(self, call: Call, event: int) -> torch.Tensor:
        parts = _stacked(call, event, self.rank, self.size)
        return put(np.stack(parts)) if self.plain else torch.stack([put(x) for x in parts])

    def split(self, call: Call, found: list[Any]) -> list[Any]:
        """Results as `expected` has them: stacked ones by rank."""
        stacked = call.op in _STACKED or (call.op == "all_to_all_single" and not call.splits)
        return list(found[0]) if stacked else found

    def _exchange(self, call: Call, event: int, options: Any) -> tuple[list[Any], list[Any]]:
        sent = [
            put(operand(call, event, self.rank, to, (rows(call, self.own, to), 2)))
            for to in range(self.size)
        ]
        dtype = sent[0].dtype
        sizes = [rows(call, source, self.own) for source in range(self.size)]
        device = torch_xla.device()
        outputs = [torch.zeros(size, 2, dtype=dtype, device=device) for size in sizes]
        if call.op == "all_to_all":
            return [dist.all_to_all(outputs, sent, **options)], outputs
        whole = torch.cat(outputs)
        of = [len(x) for x in sent]
        work = dist.all_to_all_single(whole, torch.cat(sent), sizes, of, **options)
        return [work], [("rows", whole, sizes)]

    def _barrier(self, call: Call) -> tuple[list[Any], list[Any]]:
        if call.op == "monitored_barrier":
            torch_xla_cc.distributed.monitored_barrier(self.group)
            return [], []
        return [dist.barrier(group=self.group, async_op=call.how != "at once")], []

    def _objects(self, call: Call, event: int) -> list[Any]:
        text, root = said(call, event, self.rank), self.members[call.root % self.size]
        found: list[Any] = [None] * self.size
        if call.op == "all_gather_object":
            dist.all_gather_object(found, text, group=self.group)
        elif call.op == "gather_object":
            found = found if self.own == call.root else []
            dist.gather_object(text, found or None, root, group=self.group)
        elif call.op == "broadcast_object_list":
            found = [text]
            dist.broadcast_object_list(found, root, group=self.group)
        else:
            found = [None]
            texts = [f"{text} to {to}" for to in range(self.size)]
            inputs = texts if self.own == call.root else None
            dist.scatter_object_list(found, inputs, root, group=self.group)
        return found

    def _coalesced(self, call: Call, event: int) -> tuple[list[Any], list[Any]]:
        n, rank = self.size, self.rank
        xs = [put(operand(call, event, rank, part)) for part in range(2)]
        if call.op == "coalesced_all_reduce":
            with dist._coalescing_manager(self.group):
                for x in xs:
                    dist.all_reduce(x, getattr(dist.ReduceOp, call.kind), group=self.group)
            return [], xs
        if call.op == "coalesced_all_gather":
            outputs = [self._zeros(call, n).flatten(0, 1) for x in xs]
            with dist._coalescing_manager(self.group):
                for output, x in zip(outputs, xs, strict=True):
                    dist.all_gather_into_tensor(output, x, group=self.group)
            return [], outputs
        outputs = [self._zeros(call) for x in xs]
        parts = [put(x) for x in _stacked(call, event, rank, n + 1)]
        inputs = [torch.cat(parts[:n]), torch.cat(parts[1:])]
        with dist._coalescing_manager(self.group):
            for output, x in zip(outputs, inputs, strict=True):
                dist.reduce_scatter_tensor(
                    output, x, getattr(dist.ReduceOp, call.kind), group=self.group
                )
        return [], outputs

    def _functional(self, call: Call, event: int) -> list[Any]:
        x, g = put(operand(call, event, self.rank)), self.group
        if call.op == "functional all_reduce":
            kind = {"PRODUCT": "product"}.get(call.kind, call.kind.lower())
            return [functional.all_reduce(x, kind, g)]
        if call.op == "functional broadcast":
            return [functional.broadcast(x, call.root, g)]
        if call.op == "functional all_gather":
            whole = functional.all_gather_tensor(x[None], 0, g)
            return [functional.wait_tensor(whole)]  # torch takes no views of it before
        parts = self._put_stacked(call, event)
        if call.op == "functional reduce_scatter":
            kind = {"PRODUCT": "product"}.get(call.kind, call.kind.lower())
            part = functional.reduce_scatter_tensor(parts, kind, 0, g)
            return [functional.wait_tensor(part)]
        return [functional.wait_tensor(functional.all_to_all_single(parts, None, None, g))]

    def _from_anyone(self, call: Call, event: int) -> list[Any]:
        if self.own != call.root:
            x = put(operand(call, event, self.rank))
            dist.send(x, self.members[call.root], self.group, call.tag)
            return []
        found = {}
        for _ in range(self.size - 1):
            x = self._zeros(call)
            found[dist.recv(x, None, self.group, call.tag)] = x
        return [one for rank in sorted(found) for one in (str(rank), found[rank])]

    def _messages(self, call: Call, event: int) -> tuple[list[Any], list[Any]]:
        to = self.members[(self.own + call.peer) % self.size]
        source = self.members[(self.own - call.peer) % self.size]
        if call.op == "objects sent":
            found: list[Any] = [None]
            send = lambda: dist.send_object_list([said(call, event, self.rank)], to, self.group)  # noqa: E731
            receive = lambda: dist.recv_object_list(found, source, self.group)  # noqa: E731
            first = self.own < self.members.index(source)  # of each ring not all, and one
            for step in (send, receive) if first else (receive, send):
                step()
            return [], found
        x = put(operand(call, event, self.rank))
        y = self._zeros(call)
        if call.op == "batch":
            ops = [
                dist.P2POp(dist.isend, x, to, self.group, call.tag),
                dist.P2POp(dist.irecv, y, source, self.group, call.tag),
            ]
            return dist.batch_isend_irecv(ops if event % 2 else ops[::-1]), [y]
        works = [dist.isend(x, to, self.group, call.tag)]
        works.append(dist.irecv(y, source, self.group, call.tag))
        return works, [y]


def finish(works: list[Any], how: str, helpers: bool) -> None:
    """Wait for them, in the way that is asked for."""
    works = [work for work in works if work is not None]
    for work in works if how != "twice" else [*works, *works[::-1]]:
        if how == "poll":
            work.is_completed()
        if how == "future":
            work.get_future().wait()
        if how == "twice" and helpers:  # at once, from two threads
            other = threading.Thread(target=_waits, args=(work,))
            other.start()
            try:
                work.wait()
            finally:
                other.join()
        work.wait()


def _waits(work: Any) -> None:
    try:
        work.wait()
    except RuntimeError:  # which the rank's own thread raises too
        return


def refused(member: Member) -> None:
    """A call that is no call of this rank: its arguments are refused before."""
    x = torch.zeros(3, device=torch_xla.device())
    try:
        dist.all_gather_into_tensor(torch.zeros(1, device=x.device), x, group=member.group)
    except ValueError as error:
        assert "(D4)" in str(error), error
    else:
        raise AssertionError("an output of another size was taken")


def read(x: Any) -> list[Any]:
    """The results of a call, on the host."""
    if isinstance(x, tuple):
        _, whole, sizes = x
        return [take(part) for part in whole.cpu().split(sizes)]
    return [take(x)]
