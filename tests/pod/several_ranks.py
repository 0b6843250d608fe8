"""What tests do on several ranks of the pod."""

import os
import resource
import signal
import time

import pods
import torch
import torch_xla
from torch_xla import runtime
from torch_xla.core import xla_model as stock

from torch_xla_cc import xla_model as ours

SHARD = 6


def _data(rank, size, dtype=torch.float32):
    return (torch.arange(size * SHARD) % 7 + 10 * rank).to(dtype)


def in_one_graph(rank, dtype_name):
    """torch_xla's collectives and ours, in one program; the operand of each rank is known."""
    size = runtime.world_size()
    x = _data(rank, size, getattr(torch, dtype_name)).to("xla")
    ring = [(i, (i + 1) % size) for i in range(size)]
    results = {
        "stock all_reduce": stock.all_reduce(stock.REDUCE_SUM, x),
        "all_reduce": ours.all_reduce(ours.REDUCE_SUM, x),
        "stock all_gather": stock.all_gather(x, pin_layout=False),
        "all_gather": ours.all_gather(x),
        "reduce_scatter": ours.reduce_scatter(ours.REDUCE_SUM, x, 1.0, 0, size),
        "collective_permute": ours.collective_permute(x, pairs=ring),
        "all_to_all": ours.all_to_all(x, 0, 0, size),
    }
    hlo = torch_xla._XLAC._get_xla_tensors_hlo(list(results.values()))
    torch_xla.sync()
    kept = [name for name in _INSTRUCTIONS if f" {name}(" in hlo]
    return {name: result.cpu() for name, result in results.items()}, kept


# Without reduce-scatter, in which gloo gives up on a rank that is 30 s late.
_INSTRUCTIONS = ("all-reduce", "all-gather", "collective-permute", "all-to-all")


def expected(rank, size, dtype_name):
    """The same, by hand."""
    every = [_data(r, size, getattr(torch, dtype_name)) for r in range(size)]
    total = torch.stack(every).sum(0).to(every[0].dtype)
    mine = slice(rank * SHARD, (rank + 1) * SHARD)
    return {
        "stock all_reduce": total,
        "all_reduce": total,
        "stock all_gather": torch.cat(every),
        "all_gather": torch.cat(every),
        "reduce_scatter": total[mine],
        "collective_permute": every[(rank - 1) % size],
        "all_to_all": torch.cat([data[mine] for data in every]),
    }


def nans(rank, dtype_name):
    """Bits of NaNs, zeros and infinities of each sign, as integers."""
    size = getattr(torch, dtype_name).itemsize
    if size == 1:
        bits = torch.tensor([0x7D, 0x7F, 0xFD, 0xFF, 0x80, 0x7E], dtype=torch.uint8)
        return bits.roll(rank)
    return torch.tensor([0x7F81, 0xFF85 - 2**16, 0x7FC3, -(2**15), 0x7C01, 5]).short().roll(rank)


def of_nans(rank, dtype_name):
    """What comes of them, bits again."""
    x = nans(rank, dtype_name).view(getattr(torch, dtype_name)).to("xla")
    size = runtime.world_size()
    ring = [(i, (i + 1) % size) for i in range(size)]
    results = {
        "all_gather": ours.all_gather(x),
        "collective_permute": ours.collective_permute(x, pairs=ring),
        "all_to_all": ours.all_to_all(x, 0, 0, size),
    }
    torch_xla.sync()
    integer = torch.uint8 if x.element_size() == 1 else torch.int16
    return {name: result.cpu().view(integer) for name, result in results.items()}


def of_constants(rank, whose, name):
    """An operand that is a constant in the programs of ranks 0 and 1 alone: torch_xla's way."""
    size = runtime.world_size()
    x = torch.full((size * 3,), float(rank), device="xla")
    ring = [(i, (i + 1) % size) for i in range(size)]
    xm = {"ours": ours, "stock": stock}[whose]
    calls = {
        "all_reduce": lambda: xm.all_reduce(xm.REDUCE_SUM, x),
        "all_gather": lambda: xm.all_gather(x, pin_layout=False),
        "reduce_scatter": lambda: xm.reduce_scatter(xm.REDUCE_SUM, x, 1.0, 0, size),
        "all_to_all": lambda: xm.all_to_all(x, 0, 0, size),
        "collective_permute": lambda: xm.collective_permute(x, pairs=ring),
    }
    return calls[name]().cpu().reshape(-1)[::3].tolist()


def of_some(rank: int, name: str) -> tuple[list[float], float]:
    """What ranks 0 to 2 get of a collective of theirs; then a sum of all."""
    x = torch.full((3,), rank + 1.0).to("xla")
    groups = [[0, 1, 2]]
    found: list[float] = []
    if rank < 3:
        if name == "all_gather":
            y = ours.all_gather(x, 0, groups=groups)
        elif name == "all_reduce":
            y = ours.all_reduce(ours.REDUCE_SUM, x, groups=groups)
        elif name == "collective_permute":
            y = ours.collective_permute(x, [[0, 1], [1, 2], [2, 0]])
        else:
            y = ours.all_to_all(x, 0, 0, 3, groups=groups)
        found = y.tolist()
    return found, float(ours.all_reduce(ours.REDUCE_SUM, x)[0])


def in_groups(rank, groups):
    """Sums of two kinds of groups, one after the other."""
    x = torch.full((5,), float(rank + 1)).to("xla")
    pairs, others = groups
    first = ours.all_reduce(ours.REDUCE_SUM, x, groups=pairs)
    second = ours.all_reduce(ours.REDUCE_SUM, first, groups=others)
    return float(first.cpu()[0]), float(second.cpu()[4])


def steps(rank, count):
    """Many steps that are not waited for, each with a sum; and the last value."""
    size = runtime.world_size()
    x = torch.ones(64).to("xla")
    for _ in range(count):
        x = stock.all_reduce(stock.REDUCE_SUM, x) / size
        torch_xla.sync()
    return float(x.cpu()[63])


def scatters_while_others_are_late(rank, late_s):
    """Rank 0's reduce_scatter waits for the others; how long, and what comes of it."""
    size = runtime.world_size()
    x = torch.full((size,), 1.0 + rank).to("xla")
    ours.reduce_scatter(ours.REDUCE_SUM, x, 1.0, 0, size).cpu()
    began = time.monotonic()
    if rank:
        time.sleep(late_s)
    value = float(ours.reduce_scatter(ours.REDUCE_SUM, x + 1, 1.0, 0, size).cpu()[0])
    return value, time.monotonic() - began


def scatters_little(rank, groups):
    """The smallest send buffer of the device process, after each and at the next collective.

    Or why they cannot be looked at.
    """
    (device,) = pods.device_processes([os.getpid()]).values()
    size, found = len(groups[0]), []
    for count in (1, 30_000, 1):
        x = torch.ones(size * count, device="xla")
        stock.reduce_scatter(stock.REDUCE_SUM, x, 1.0, 0, size, groups).sum().item()
        for _ in range(2):
            try:
                found.append(min(pods.send_buffers(device)))
            except PermissionError as error:
                return str(error)
            if len(found) % 2:
                ours.all_reduce(ours.REDUCE_SUM, torch.ones(3, device="xla")).sum().item()
    return found


def meets_first_while_one_is_late(rank, late_s):
    """Ranks 0 and 1 wait for rank 2, in what gloo itself gives 30 s."""
    x = torch.full((3,), 1.0 + rank).to("xla")
    if rank == 2:
        time.sleep(late_s)
    found = []
    if rank:
        groups = [[1, 2]]
        found += ours.all_reduce(ours.REDUCE_SUM, x, groups=groups).tolist()
    return found + stock.reduce_scatter(stock.REDUCE_SUM, x, 1.0, 0, 3).tolist()


def is_late(rank, late_s):
    """The last rank comes too late to a collective: what each is told, and when."""
    size = runtime.world_size()
    x = torch.ones(8).to("xla")
    stock.all_reduce(stock.REDUCE_SUM, x).cpu()
    if rank == size - 1:
        time.sleep(late_s)
    began = time.monotonic()
    try:
        return stock.all_reduce(stock.REDUCE_SUM, x + 1).cpu().tolist(), 0.0
    except (RuntimeError, ValueError) as error:
        return str(error), time.monotonic() - began


def reads_while_others_are_late(rank, late_s):
    """Rank 0 runs a collective that waits for the others, and reads what does not wait for it."""
    size = runtime.world_size()
    x = torch.ones(8).to("xla")
    there = torch.arange(8.0).to("xla") * 2
    torch_xla.sync(wait=True)
    began = time.monotonic()
    if rank:
        time.sleep(late_s)
    y = stock.all_reduce(stock.REDUCE_SUM, x)
    torch_xla.sync()
    value = there.cpu().tolist()
    read = time.monotonic() - began
    total = float(y.cpu()[0])
    return value, read, total, time.monotonic() - began, size


def ids(rank):
    """What torch_xla says of the world."""
    return (
        runtime.global_ordinal(),
        runtime.world_size(),
        runtime.process_index(),
        runtime.process_count(),
        [a["name"] for a in runtime.global_runtime_device_attributes()],
        str(torch_xla.device()),
    )


def sharded(rank):
    """torch_xla's SPMD over the processes: a matmul of which each has a part."""
    import numpy as np
    import torch_xla.distributed.spmd as spmd

    runtime.use_spmd()
    size = runtime.global_runtime_device_count()
    mesh = spmd.Mesh(np.arange(size), (size,), ("x",))
    a = torch.arange(size * 2 * 3.0).reshape(size * 2, 3)
    there = a.to("xla")
    spmd.mark_sharding(there, mesh, ("x", None))
    product = (there.t() @ there).cpu()
    for _ in range(2):  # in place: its buffer is donated
        there += 1
        torch_xla.sync()
    assert torch.equal(there.cpu(), a + 2)
    return product, a.t() @ a


def dies(rank, who, when, what):
    """Steps, in which `what` of rank `who` is killed; what the others are told, and when."""
    size = runtime.world_size()
    x = torch.ones(8).to("xla")

    def step(x):
        y = stock.all_reduce(stock.REDUCE_SUM, x) / size
        torch_xla.sync(wait=True)
        return y

    x = step(x)
    ready = torch.arange(4.0).to("xla") + 1
    ready.cpu()
    began = time.monotonic()
    if rank == who:
        time.sleep(1.0)  # the others have what is read above; or are in the collective below
        (device,) = pods.device_processes([os.getpid()]).values()
        number = signal.SIGSTOP if what == "stopped" else signal.SIGKILL
        os.kill(os.getpid() if what == "rank" else device, number)
    try:
        for _ in range(3):
            if when == "before":  # its end has been seen when the others call
                time.sleep(1.5)
            x = step(x)
        x.cpu()
        return "no error", 0.0, None
    except (RuntimeError, ValueError) as error:
        took = time.monotonic() - began
        try:
            still = ready.cpu().tolist()
        except (RuntimeError, ValueError):
            still = None
        return str(error), took, still


def has_no_shared_memory(rank):
    """One rank's is full when it makes a tensor, and when it reads one: what it and all get."""
    big = torch.full((1 << 20,), rank + 1.0)
    free = resource.getrlimit(resource.RLIMIT_FSIZE)
    said = []

    def tries(call):
        if rank != 1:
            return call()
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, free[1]))
        try:
            call()
        except (RuntimeError, ValueError) as error:
            said.append(str(error))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, free)
        return call()

    x = tries(lambda: big.to("xla"))
    y = ours.all_reduce(ours.REDUCE_SUM, x)
    torch_xla.sync(wait=True)
    return float(tries(y.cpu).sum()) / big.numel(), said


def fails_alone(rank):
    """A program with a collective that one rank has no memory for: what each is told."""
    x = torch.ones(8).to("xla")
    stock.all_reduce(stock.REDUCE_SUM, x).cpu()
    huge = None
    if rank == 0:
        column = torch.ones(1 << 21, 1).to("xla")
        huge = column @ column.t()
    y = stock.all_reduce(stock.REDUCE_SUM, x + 1)
    torch_xla.sync()
    del huge
    try:
        return y.cpu().tolist()
    except (RuntimeError, ValueError) as error:
        return str(error)
