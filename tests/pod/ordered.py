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
            if rank == 1:  # which then has no result of the last call
                y, b = a, None
            else:
                y = torch.maximum(a, a - b)  # which is a, as XLA cannot know
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


def loops(rank):
    """A call in a loop, and calls before and after it, of which another is used first by rank 1."""
    from torch._higher_order_ops.while_loop import while_loop

    def body(i, y):
        return i - 1, ours.all_reduce(ours.REDUCE_SUM, y)

    x = torch.arange(4.0).to("xla") + rank
    torch_xla.sync()  # (torch_xla would trace what x needs into the loop)
    before = ours.all_reduce(ours.REDUCE_SUM, x * 10)
    _, y = while_loop(lambda i, y: i > 0, body, (torch.tensor(3).to("xla"), x))
    after = ours.all_reduce(ours.REDUCE_SUM, x * 100)
    found = (before, y, after) if rank else (after, y, before)
    torch_xla.sync()
    return [z.tolist() for z in (found if rank else found[::-1])]


def scans(rank):
    """The same of torch_xla's scan."""
    from torch_xla.experimental.scan import scan

    from torch_xla_cc import functions

    def body(carry, x):
        return carry + 1, functions.all_reduce(ours.REDUCE_SUM, x + carry)

    x = torch.arange(8.0).reshape(4, 2).to("xla") + rank
    before = ours.all_reduce(ours.REDUCE_SUM, x * 10)
    _, y = scan(body, torch.zeros(2).to("xla"), x)
    after = ours.all_reduce(ours.REDUCE_SUM, x * 100)
    found = (before, y, after) if rank else (after, y, before)
    torch_xla.sync()
    return [z.tolist() for z in (found if rank else found[::-1])]


def reads_beside(rank):
    """A thread reads what is there, while the other runs collectives: errors, and the sums."""
    import threading

    x = torch.ones(4).to("xla")
    torch_xla.sync()
    ends, errors = threading.Event(), []

    def read():
        while not ends.is_set():
            try:
                assert x.tolist() == [1.0] * 4
            except Exception as error:
                errors.append(str(error))

    thread = threading.Thread(target=read)
    thread.start()
    sums = [ours.all_reduce(ours.REDUCE_SUM, x + i).tolist() for i in range(40)]
    ends.set()
    thread.join()
    return errors[:3], sums


def reads_several(rank):
    """An operator that torch_xla runs on the CPU, with a tensor of its own and one of all."""
    own = torch.arange(4.0).to("xla") + 1
    a = ours.all_reduce(ours.REDUCE_SUM, torch.arange(4.0).to("xla"))
    b = ours.all_reduce(ours.REDUCE_SUM, own)
    found = torch.searchsorted(own, a)
    return found.tolist(), a.tolist(), b.tolist()


def compiles_alone(rank):
    """A compiled function of its own, which one rank calls while a collective is pending."""
    own = torch.compile(lambda x: x * 2 + 1, backend="openxla")
    x = torch.arange(4.0).to("xla")
    own(x)
    found = []
    for _ in range(2):
        a = ours.all_reduce(ours.REDUCE_SUM, x)
        if rank == 1:
            found += own(x).tolist()
        b = ours.all_reduce(ours.REDUCE_SUM, x * 10)
        torch_xla.sync()
        found += (a + b).tolist()
    return found[-4:]


def in_threads(rank):
    """Sums of two threads of each rank, one after the other by turns, and what each gives."""
    import threading

    found = {}
    turn = threading.Condition()
    order = []

    def work(number):
        for i in range(5):
            with turn:
                turn.wait_for(lambda: len(order) % 2 == number)
                x = torch.full((3,), float(10 * number + i)).to("xla")
                found[number, i] = ours.all_reduce(ours.REDUCE_SUM, x)
                order.append(number)
                turn.notify_all()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch_xla.sync()
    return {key: x.tolist() for key, x in found.items()}


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
