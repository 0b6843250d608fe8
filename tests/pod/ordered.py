"""What tests do on ranks of the pod whose programs order the same collectives differently."""

import torch
import torch_xla
from torch_xla import runtime
from torch_xla.core import xla_model as stock

from torch_xla_cc import xla_model as ours


def reads_alone(rank):
    """Sums, between which a rank reads what is its own."""
    x, z = torch.full((4,), rank + 1.0).to("xla"), torch.ones(3).to("xla")
    a, b = ours.all_reduce(ours.REDUCE_SUM, x), ours.all_reduce(ours.REDUCE_SUM, x * 10)
    if rank == 0:
        (z * 2).cpu()
    c = ours.all_reduce(ours.REDUCE_SUM, x * 100)
    torch_xla.sync()
    return [float(y[0]) for y in (a, b, c)]


def differs_by_a_constant(rank):
    """Independent collectives, which XLA:CPU would schedule by what is around them; and calls."""
    size = runtime.world_size()
    every = [torch.full((8, 8), float(i)).to("xla") for i in range(4)]
    found = []
    for i, x in enumerate(every):
        if (rank + i) % 2:  # more to do before some of them, on this rank
            x = (x @ torch.eye(8, device="xla") * 2).relu() / 2
        found += [
            ours.all_reduce(ours.REDUCE_SUM, x),
            ours.all_gather(x).sum(0) / 8,
            stock.all_reduce(stock.REDUCE_MAX, x),
            ours.all_to_all(x, 0, 0, size),
        ]
    torch_xla.sync()
    return [float(x.reshape(-1)[0]) for x in found]


def uses_results_in_an_order_of_its_own(rank, way):
    """Two sums, of which each rank uses another first, drops one, or reads one before the other."""
    x = torch.arange(4).to("xla") + rank
    found = []
    for step in range(3):
        a = ours.all_reduce(ours.REDUCE_SUM, x + step)
        local = x * 2  # which has a part in no call
        b = ours.all_reduce(ours.REDUCE_SUM, x * 10)
        if way == "minus":
            y = a - b if rank else -(b - a)
        elif way == "drop":
            del a
            y = b if rank else b + 0
        elif way == "read":
            first, second = (a, b) if rank else (b, a)
            found += [first.sum().item() * 0, second.sum().item() * 0]
            y = a - b
        else:
            found += [local.sum().item() * 0] * (rank == 1)  # alone
            y = a - b if rank else -(b - a)
        a = b = None
        found += y.cpu().tolist() if way == "read" else [y]
        torch_xla.sync()
    return [z for y in found for z in (y.tolist() if isinstance(y, torch.Tensor) else [y])]


def compiles(rank):
    """Two sums in a function that torch.compile has captured, after one that is pending."""

    @torch.compile(backend="openxla")
    def function(x):
        a = ours.all_reduce(ours.REDUCE_SUM, x)
        b = ours.all_reduce(ours.REDUCE_SUM, x * 10)
        return a - b if rank else -(b - a)

    x = torch.full((4,), rank + 1.0).to("xla")
    found = []
    for _ in range(3):
        pending = ours.all_reduce(ours.REDUCE_SUM, x * 100)
        y = function(x)
        found += [float(y[0]), float(pending[0])]
    return found


def repeats_steps(rank):
    """Programs compiled in steps after the first two, which end in each of two ways."""

    def compiled():
        return torch_xla._XLAC._xla_counter_value("UncachedCompile") or 0

    x = torch.full((4,), rank + 1.0).to("xla")
    counts = []
    for reads in (False, True):
        for step in range(6):
            if step == 2:
                before = compiled()
            a, b = ours.all_reduce(ours.REDUCE_SUM, x), ours.all_reduce(ours.REDUCE_MAX, x)
            y = a + b
            del a, b
            if reads:
                y.cpu()
            torch_xla.sync()
        counts.append(compiled() - before)
    return counts
