"""Calls of torch.distributed, each as a function of the rank and the device.

A call makes its tensors on the device, and returns what it got, on the CPU. So the same call on
CPU tensors, which gloo serves, says what is right.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
import torch_xla

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int32, torch.int64, torch.uint8, torch.int8]
# Those that gloo does not reduce, and the kinds that they have.
_ORDERED = ["SUM", "PRODUCT", "MIN", "MAX"]
_WHOLE = [*_ORDERED, "BAND", "BOR", "BXOR", "AVG", "PREMUL_SUM"]
OTHER_TYPES = {
    torch.int8: ["PREMUL_SUM"],
    torch.int32: ["PREMUL_SUM"],
    torch.int64: ["PREMUL_SUM"],
    torch.int16: _WHOLE,
    torch.uint16: _WHOLE,
    torch.uint32: _WHOLE,
    torch.uint64: _WHOLE,
    torch.bool: [*_ORDERED, "BAND", "BOR", "BXOR"],
    # torch.distributed refuses other kinds. Not complex128: torch_xla's transfers lose parts of it.
    torch.complex64: ["SUM"],
    torch.float8_e4m3fn: _ORDERED,
    torch.float8_e5m2: _ORDERED,
}
KINDS = ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]


def values(rank: int, shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """1 to 3, of which all types hold the sums and products of four."""
    count = torch.Size(shape).numel()
    return (torch.arange(count).reshape(shape) * 7 % 3 + 1 + rank % 2).to(dtype).to(device)


def step(device: str) -> None:
    """Where one rank reads what others do not, all must step: a lazy graph runs then."""
    if device != "cpu":
        torch_xla.sync()


def all_reduce(rank, device, kind="SUM", shape=(3, 4), dtype=torch.float32, group=None):
    x = values(rank, shape, dtype, device)
    dist.all_reduce(x, getattr(dist.ReduceOp, kind), group=group)
    return [x.cpu()]


def broadcast(rank, device, shape=(3, 4), dtype=torch.float32):
    root = dist.get_world_size() - 1
    x = values(rank, shape, dtype, device)
    dist.broadcast(x, root)
    return [x.cpu()]


def reduce(rank, device, kind="SUM", shape=(3, 4), dtype=torch.float32):
    x = values(rank, shape, dtype, device)
    dist.reduce(x, 0, getattr(dist.ReduceOp, kind))
    step(device)
    if rank == 0:
        return [x.cpu()]
    # gloo changes the others; ours keep what they have.
    return [values(rank, shape, dtype, "cpu") if device == "cpu" else x.cpu()]


def all_gather(rank, device, shape=(3, 4), dtype=torch.float32):
    x = values(rank, shape, dtype, device)
    outputs = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(outputs, x)
    return [output.cpu() for output in outputs]


def all_gather_into_views(rank, device, dtype=torch.float32):
    """The list is chunks of one buffer."""
    x = values(rank, (2, 3), dtype, device)
    buffer = torch.zeros(2 * dist.get_world_size(), 3, dtype=dtype, device=device)
    dist.all_gather(list(buffer.chunk(dist.get_world_size())), x)
    return [buffer.cpu()]


def all_gather_into_tensor(rank, device, shape=(3, 4), stacked=False, dtype=torch.float32):
    x = values(rank, shape, dtype, device)
    size = dist.get_world_size()
    output = torch.zeros(size * shape[0], *shape[1:], dtype=dtype, device=device)
    if stacked and device != "cpu":  # gloo has one form only
        output = output.reshape(size, *shape)
    dist.all_gather_into_tensor(output, x)
    return [output.cpu().flatten()]


def gather(rank, device, shape=(3, 4), dtype=torch.float32):
    x = values(rank, shape, dtype, device)
    size = dist.get_world_size()
    outputs = [torch.zeros_like(x) for _ in range(size)] if rank == size - 1 else None
    dist.gather(x, outputs, dst=size - 1)
    step(device)
    return [output.cpu() for output in outputs or []]


def scatter(rank, device, shape=(3, 4), dtype=torch.float32):
    size = dist.get_world_size()
    output = torch.zeros(shape, dtype=dtype, device=device)
    inputs = [values(i, shape, dtype, device) for i in range(size)] if rank == 0 else None
    dist.scatter(output, inputs, src=0)
    return [output.cpu()]


def reduce_scatter(rank, device, kind="SUM", dtype=torch.float32):
    size = dist.get_world_size()
    inputs = [values(rank + i, (3, 4), dtype, device) for i in range(size)]
    output = torch.zeros((3, 4), dtype=dtype, device=device)
    dist.reduce_scatter(output, inputs, getattr(dist.ReduceOp, kind))
    return [output.cpu()]


def reduce_scatter_tensor(rank, device, kind="SUM", stacked=False, dtype=torch.float32):
    size = dist.get_world_size()
    output = torch.zeros((3, 4), dtype=dtype, device=device)
    x = values(rank, (size * 3, 4), dtype, device)
    if stacked and device != "cpu":  # gloo has one form only
        x = x.reshape(size, 3, 4)
    dist.reduce_scatter_tensor(output, x, getattr(dist.ReduceOp, kind))
    return [output.cpu()]


def all_to_all_single(rank, device, dtype=torch.float32):
    size = dist.get_world_size()
    x = values(rank, (2 * size, 3), dtype, device)
    output = torch.zeros_like(x)
    dist.all_to_all_single(output, x)
    return [output.cpu()]


def all_to_all_split(rank, device, dtype=torch.float32):
    """Rank i sends (2 i + j) % 3 rows to rank j, and gets another number from it."""
    size = dist.get_world_size()
    sent = [(2 * rank + to) % 3 for to in range(size)]
    received = [(2 * source + rank) % 3 for source in range(size)]
    x = values(rank, (sum(sent), 2, 2), dtype, device)
    output = torch.zeros(sum(received), 2, 2, dtype=dtype, device=device)
    dist.all_to_all_single(output, x, received, sent)
    return [output.cpu()]


def send_and_recv(rank, device, dtype=torch.float32):
    """A ring, with tags; both ends first send."""
    size = dist.get_world_size()
    if size == 1:
        return []
    x = values(rank, (5,), dtype, device)
    first, second = torch.zeros_like(x), torch.zeros_like(x)
    works = [dist.isend(x, (rank + 1) % size, tag=1), dist.isend(x + 1, (rank + 1) % size, tag=2)]
    works.append(dist.irecv(second, (rank - 1) % size, tag=2))
    works.append(dist.irecv(first, (rank - 1) % size, tag=1))
    for work in works:
        work.wait()
    return [first.cpu(), second.cpu()]


def receives_first(rank, device):
    """Both ends receive before they send; two of one tag, waited for in the other order."""
    size = dist.get_world_size()
    if size == 1:
        return []
    before, after = (rank - 1) % size, (rank + 1) % size
    x = values(rank, (4,), torch.int32, device)
    outputs = [torch.zeros_like(x) for _ in range(2)]
    works = [dist.irecv(output, before, tag=3) for output in outputs]
    works += [dist.isend(x * (i + 1), after, tag=3) for i in range(2)]
    for work in reversed(works):
        work.wait()
    assert all(work.is_completed() for work in works)
    return [output.cpu() for output in outputs]


def polls(rank, device):
    """Asks until all is done; most sends are dropped, which gloo would not carry out then."""
    size = dist.get_world_size()
    if size == 1:
        return []
    x = values(rank, (40,), torch.float32, device)
    outputs = [torch.zeros_like(x) for _ in range(40)]
    works = [dist.isend(x, (rank + 1) % size) for _ in outputs]
    if device != "cpu":
        works = works[-1:]
    works += [dist.irecv(output, (rank - 1) % size) for output in outputs]
    end = time.monotonic() + 30
    while device != "cpu" and not all(work.is_completed() for work in works):
        assert time.monotonic() < end
        time.sleep(0.01)
    for work in works:  # gloo never says so itself
        work.wait()
    return [output.cpu() for output in outputs]


def batch(rank, device):
    """A ring in both directions at once."""
    size = dist.get_world_size()
    if size == 1:
        return []
    x = values(rank, (3,), torch.float32, device)
    forward, backward = torch.zeros_like(x), torch.zeros_like(x)
    ops = [
        dist.P2POp(dist.irecv, forward, (rank - 1) % size, tag=1),
        dist.P2POp(dist.isend, x, (rank + 1) % size, tag=1),
        dist.P2POp(dist.irecv, backward, (rank + 1) % size, tag=2),
        dist.P2POp(dist.isend, x + 5, (rank - 1) % size, tag=2),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return [forward.cpu(), backward.cpu()]


def from_anyone(rank, device):
    size = dist.get_world_size()
    if rank > 0:
        dist.send(torch.full((2,), float(rank), device=device), 0)
        return []
    found = {}
    for _ in range(1, size):
        x = torch.zeros(2, device=device)
        source = dist.recv(x)
        found[source] = x.cpu()
    return [found[source] for source in range(1, size)]


def coalesced(rank, device):
    size = dist.get_world_size()
    xs = [values(rank, (3,), torch.float32, device), values(rank, (2, 2), torch.float32, device)]
    with dist._coalescing_manager():
        for x in xs:
            dist.all_reduce(x)
    outputs = [torch.zeros(size * 3, device=device), torch.zeros(size * 2, 2, device=device)]
    with dist._coalescing_manager():
        for output, x in zip(outputs, xs, strict=True):
            dist.all_gather_into_tensor(output, x)
    parts = [torch.zeros(3, device=device), torch.zeros(2, 2, device=device)]
    with dist._coalescing_manager():
        for part, output in zip(parts, outputs, strict=True):
            dist.reduce_scatter_tensor(part, output)
    return [x.cpu() for x in (*xs, *outputs, *parts)]


def asynchronous(rank, device):
    x = values(rank, (64,), torch.float32, device)
    y = x.clone()  # gloo carries out two calls at a time: the one would write what the other reads
    outputs = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
    works = [dist.all_gather(outputs, x, async_op=True), dist.all_reduce(y, async_op=True)]
    works[0].wait()
    value = works[1].get_future().wait()
    works[1].wait()
    assert all(work.is_completed() and work.is_success() for work in works)
    assert len(value) == 1
    return [y.cpu(), *(output.cpu() for output in outputs)]


def scaled(rank, device, kind="AVG"):
    """What gloo has not: the same by a sum."""
    x = values(rank, (5,), torch.float32, device) * 12  # sums divide by every size
    if device == "cpu":
        x *= 3.0 if kind == "PREMUL_SUM" else 1.0
        dist.all_reduce(x)
        return [x / dist.get_world_size() if kind == "AVG" else x]
    op = dist._make_nccl_premul_sum(3.0) if kind == "PREMUL_SUM" else dist.ReduceOp.AVG
    dist.all_reduce(x, op)
    return [x.cpu()]


def views(rank, device):
    """Strided, expanded and transposed inputs; outputs that are parts of one buffer."""
    size = dist.get_world_size()
    x = values(rank, (4, 6), torch.float32, device)
    strided, expanded = x[:, ::2], x[:1].expand(3, 6)
    outputs = [torch.zeros(4, 3, device=device) for _ in range(size)]
    dist.all_gather(outputs, strided.contiguous() if device == "cpu" else strided)
    more = [torch.zeros(3, 6, device=device) for _ in range(size)]
    dist.all_gather(more, expanded.contiguous() if device == "cpu" else expanded)
    dist.all_reduce(x[1])  # a row: the rest stays
    leaf = torch.ones(3, device=device, requires_grad=True)
    with torch.no_grad():
        dist.broadcast(leaf, 0)
    assert leaf.is_leaf
    return [x.cpu(), leaf.detach().cpu(), *(output.cpu() for output in (*outputs, *more))]


def uneven_lists(rank, device):
    """Tensors of another size for each rank: what gloo, which refuses them, would give."""
    size = dist.get_world_size()
    sources = [values(i, (i + 1, 3), torch.float32, "cpu") for i in range(size)]
    parts = [
        [values(i + j, (j + 1, 2), torch.float32, "cpu") for j in range(size)] for i in range(size)
    ]
    if device == "cpu":
        return [*sources, sum(parts[i][rank] for i in range(size))]
    outputs = [torch.zeros(i + 1, 3, device=device) for i in range(size)]
    dist.all_gather(outputs, sources[rank].to(device))
    reduced = torch.zeros(rank + 1, 2, device=device)
    dist.reduce_scatter(reduced, [part.to(device) for part in parts[rank]])
    return [*(output.cpu() for output in outputs), reduced.cpu()]


def subgroups(rank, device):
    """Overlapping groups, groups in another order, of one rank; only members call."""
    size = dist.get_world_size()
    lists = [list(range(0, size, 2)), list(range(size - 1)) or [0], [size - 1], list(range(size))]
    found = []
    for members in lists:
        group = dist.new_group(members)
        if rank in members:
            x = values(rank, (4,), torch.float32, device)
            dist.all_reduce(x, group=group)
            outputs = [torch.zeros_like(x) for _ in members]
            dist.all_gather(outputs, x + rank, group=group)
            of_last = x + rank
            dist.broadcast(of_last, members[-1], group=group)
            found += [x.cpu(), of_last.cpu(), *(output.cpu() for output in outputs)]
    return found


def objects(rank, device):
    """They travel as tensors of the group's device."""
    size = dist.get_world_size()
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
    lists = [f"from {rank}", rank]
    dist.broadcast_object_list(lists, 0)
    return [gathered, lists]


def reduction_of(rank, device, dtype, kind):
    """A reduction of any type: on XLA, and what it must be, computed from all ranks' values."""
    size = dist.get_world_size()
    by_rank = [operand(i, dtype) for i in range(size)]
    if device == "cpu":
        return [expected_reduction(by_rank, kind)]
    x = by_rank[rank].to(device)
    op = dist._make_nccl_premul_sum(3.0) if kind == "PREMUL_SUM" else getattr(dist.ReduceOp, kind)
    dist.all_reduce(x, op)
    parts = torch.stack(by_rank[rank:] + by_rank[:rank]).to(device)  # part i is rank (rank + i)'s
    part = torch.zeros_like(parts[0])
    dist.reduce_scatter_tensor(part, parts, op)
    sent = [by_rank[(i + rank) % size] for i in range(size)]
    assert torch.equal(part.cpu(), expected_reduction(sent, kind)), "reduce_scatter_tensor"
    return [x.cpu()]


def operand(rank, dtype):
    if dtype == torch.bool:
        return torch.tensor([rank % 2 == 0, True, False])
    if dtype.is_complex:
        return torch.tensor([1 + rank * 1j, 2.0, -1j], dtype=dtype)
    if dtype.is_floating_point:
        return torch.tensor([1.0 + rank, -0.5, 2.0]).to(dtype)
    top = torch.iinfo(dtype).max
    values = [7 + rank, 3, top - 5 * rank]
    raw = b"".join(value.to_bytes(dtype.itemsize, "little") for value in values)
    return torch.frombuffer(bytearray(raw), dtype=dtype)


def expected_reduction(by_rank, kind):
    """By Python's numbers, element by element; integers wrap, bool adds by or."""
    dtype = by_rank[0].dtype
    results = []
    for column in zip(*(x.tolist() for x in by_rank), strict=True):
        if kind == "PREMUL_SUM":
            column = [3 * value for value in column]
        value = column[0]
        for other in column[1:]:
            value = {
                "SUM": lambda a, b: a + b,
                "PREMUL_SUM": lambda a, b: a + b,
                "AVG": lambda a, b: a + b,
                "PRODUCT": lambda a, b: a * b,
                "MIN": min,
                "MAX": max,
                "BAND": lambda a, b: a & b,
                "BOR": lambda a, b: a | b,
                "BXOR": lambda a, b: a ^ b,
            }[kind](value, other)
        if dtype not in (torch.bool,) and not dtype.is_floating_point and not dtype.is_complex:
            bits = 8 * dtype.itemsize
            value %= 2**bits
            if dtype.is_signed and value >= 2 ** (bits - 1):
                value -= 2**bits
            if kind == "AVG":
                value = int(value / len(by_rank)) if dtype.is_signed else value // len(by_rank)
            results.append((value % 2**bits).to_bytes(dtype.itemsize, "little"))
        else:
            results.append(value / len(by_rank) if kind == "AVG" else value)
    if isinstance(results[0], bytes):
        return torch.frombuffer(bytearray(b"".join(results)), dtype=dtype)
    return torch.tensor(results).to(dtype)
