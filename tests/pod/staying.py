"""What tests do with calls of torch.distributed that stay in the graph of a rank of the pod."""

import contextlib
import datetime
import os
import random
import threading
import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch_xla
from programs import compiled, ran
from torch.distributed.optim import ZeroRedundancyOptimizer

import torch_xla_cc.distributed
from torch_xla_cc.adapters import optimizers

ROUNDS = 3


def at(rank, key, fn, *args):
    """`fn`, whose world has a part of the store of its own: gloo finds what one has left there."""
    global _key
    _key = key
    return fn(rank, *args)


def _init(**options):
    if dist.is_initialized():  # another file has left its world on ranks that are kept
        dist.destroy_process_group()
    whole = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False)
    place = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    dist.init_process_group(
        "cpu:gloo,xla:xla_cc", store=dist.PrefixStore(_key, whole), **place, **options
    )


@contextlib.contextmanager
def world():
    _init()
    try:
        yield torch_xla.device(), dist.distributed_c10d._get_default_store()
    finally:
        dist.destroy_process_group()


def runs_once(rank):
    """How many programs run while calls are made, and when they are read."""
    with world() as (device, _):
        x = torch.full((3,), rank + 1.0).to(device)
        torch_xla.sync(wait=True)
        before = ran()
        gathered = torch.empty(3 * dist.get_world_size(), device=device)
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_reduce(x)
        dist.all_gather_into_tensor(gathered, x)
        dist.broadcast(x, src=1)
        dist.gather(x, parts if rank == 0 else None, dst=0)
        dist.reduce(x, dst=1)
        calling = ran() - before
        read = x.tolist(), gathered.tolist(), [part.tolist() for part in parts]
        return calling, ran() - before - calling, read


def _polls(store, key):
    seen = torch.zeros(1)
    while not store.check([key]):
        time.sleep(0.01)
        seen += 1  # of the host: it is no sign that this thread will do it


def reads_alone(rank, how):
    """Rank 1 reads what the others have in their graphs, while these wait for what follows."""
    found = []
    with world() as (device, store):
        store = dist.PrefixStore(how, store)
        took = time.monotonic()
        for i in range(ROUNDS):
            x = torch.full((3,), float(rank + i)).to(device)
            dist.all_reduce(x * 1)  # whose result nobody wants
            dist.all_reduce(x)
            if rank == 1:
                found.append(x.tolist())
                store.set(f"read {i}", "")
            elif how == "store":
                store.wait([f"read {i}"])
            elif how == "polls":
                _polls(store, f"read {i}")
            if how == "gloo":
                dist.all_reduce(torch.zeros(1))
            if how == "barrier":
                dist.barrier()
            if how == "object":
                objects = [i if rank == 1 else None]
                dist.broadcast_object_list(objects, src=1)
                found.append(objects)
            if how == "message" and rank < 2:
                message = torch.full((2,), float(i)).to(device)
                if rank == 1:
                    dist.send(message + 1, dst=0)
                else:
                    work = dist.irecv(message, src=1)
                    work.wait()
                    found.append(message.tolist())
            y = x + 1
        dist.all_reduce(y)
        found.append(y.tolist())
        return found, time.monotonic() - took


def waits_with_more(rank):
    """Rank 0 has called more than rank 1 when that reads, and waits for a message of it."""
    with world() as (device, _):
        x = torch.full((2,), rank + 1.0).to(device)
        message = torch.zeros(2).to(device)
        if rank == 0:
            work = dist.irecv(message, src=1)
        dist.all_reduce(x)
        if rank == 1:
            dist.send(x.cpu().to(device) + 1, dst=0)
        dist.all_reduce(x)
        if rank == 0:
            work.wait()
        return x.tolist(), message.tolist()


def makes_a_group(rank):
    """Rank 2 has read when the others make a group with it."""
    with world() as (device, _):
        x = torch.full((2,), rank + 1.0).to(device)
        dist.all_reduce(x)
        read = x.tolist() if rank == 2 else None
        group = dist.new_group([0, 2])
        if rank != 1:
            dist.all_reduce(x, group=group)
        return read, x.tolist()


def ends(rank):
    """Rank 0 ends the world with a call pending that it never reads."""
    with world() as (device, _):
        x = torch.full((2,), rank + 1.0).to(device)
        dist.all_reduce(x)
        return x.tolist() if rank else None


GROUPS = ((0, 1, 2), (0, 2), (1, 2))


def script(seed):
    """Calls that all make: a kind and a group; and after which a rank reads, or waits for it."""
    chance = random.Random(seed)
    for number in range(chance.randint(5, 25)):
        kind = chance.choice(("all_reduce", "broadcast", "all_gather", "reduce_scatter", "local"))
        reader = chance.choice((None, None, 0, 1, 2))
        yield number, kind, chance.choice(GROUPS), reader, chance.random() < 0.3


def _call(kind, x, group, ranks, rank):
    size = len(ranks)
    if kind == "all_reduce":
        dist.all_reduce(x, group=group)
    elif kind == "broadcast":
        dist.broadcast(x, src=ranks[-1], group=group)
    elif kind == "all_gather":
        every = torch.empty(size * x.numel(), device=x.device)
        dist.all_gather_into_tensor(every, x, group=group)
        x = every.reshape(size, -1).sum(0) - x
    elif kind == "reduce_scatter":
        part = torch.empty_like(x)
        dist.reduce_scatter_tensor(part, torch.cat([x + i for i in range(size)]), group=group)
        x = part + ranks.index(rank)
    return x


def runs_script(rank, seed, device_type):
    """What a rank has read, and has at the end. Ranks cut what they have in different places."""
    with world() as (device, store):
        device = device if device_type == "xla" else torch.device("cpu")
        store = dist.PrefixStore(f"{seed} {device_type}", store)
        groups = {ranks: dist.new_group(ranks) for ranks in GROUPS}
        x = (torch.arange(4.0) + rank).to(device)
        read = []
        for number, kind, ranks, reader, waits in script(seed):
            if kind != "local" and rank in ranks:
                x = _call(kind, x, groups[ranks], ranks, rank)
            x = (x * 0.5 + number) % 97
            if rank == reader:
                read.append(x.tolist())
                store.set(str(number), "")
            elif reader is not None and waits:
                store.wait([str(number)])
        return read, x.tolist()


def steps(rank, how, count_of):
    """Training that never reads: programs that a step runs, and that are made after the third."""
    with contextlib.ExitStack() as stack:
        device, _ = stack.enter_context(world())
        if how.endswith("adapter"):
            stack.enter_context(optimizers.installed())
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4).to(device)
        if how.startswith("zero"):
            optimizer = ZeroRedundancyOptimizer(
                model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9
            )
        else:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.full((2, 4), rank + 1.0).to(device)
        torch_xla.sync(wait=True)
        for step in range(count_of):
            if step == 3:
                before = ran(), compiled()
            optimizer.zero_grad()
            model(x).square().mean().backward()
            for p in model.parameters():
                dist.all_reduce(p.grad)
            optimizer.step()
            if how == "sync":
                torch_xla.sync()
        after = ran(), compiled()
        weights = [p.tolist() for p in model.parameters()]
        return [a - b for a, b in zip(after, before, strict=True)], weights


def fails_in_a_step(rank):
    """A step that fails inside of another's is not one that goes on for ever."""
    with world() as (device, _):
        weight = torch.nn.Parameter(torch.ones(2).to(device))
        weight.grad = torch.ones(2).to(device)

        class Fails(torch.optim.SGD):
            fails = True

            def step(self, closure=None):
                if self.fails:
                    raise ValueError("no step")
                return super().step(closure)

        optimizer = Fails([weight], lr=1.0)
        with contextlib.suppress(ValueError):
            optimizer.step()
        optimizer.fails = False
        dist.all_reduce(weight.grad)
        torch_xla.sync(wait=True)
        dist.all_reduce(weight.grad)
        before = ran()
        torch.optim.SGD([weight], lr=1.0).step()
        return ran() - before, weight.tolist()


def makes_many_calls(rank, calls):
    """None is read; how many programs have run, and what came of it."""
    with world() as (device, _):
        x = torch.full((1,), 1.0).to(device)
        torch_xla.sync(wait=True)
        before = ran()
        for _ in range(calls):
            dist.all_reduce(x, op=dist.ReduceOp.MAX)
            x += 1
        return ran() - before, x.item()


def differ(rank):
    """Rank 1 has another call among those that are pending."""
    _init()
    device = torch_xla.device()
    x = torch.ones(4).to(device)
    dist.all_reduce(x)
    if rank == 1:
        dist.all_gather_into_tensor(torch.empty(12, device=device), x)
    else:
        dist.broadcast(x, src=0)
    try:
        return x.tolist()
    except RuntimeError as error:
        return str(error)


def in_twins(rank, crossed):
    """Two groups of the same ranks: rank 0 reads after each call, and rank 1 in the end."""
    _init()
    device = torch_xla.device()
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    values = [torch.full((3,), 10.0**i * (rank + 1)).to(device) for i in range(2)]
    try:
        for i in (1, 0) if crossed and rank else (0, 1):
            dist.all_reduce(values[i], group=groups[i])
            if rank == 0:
                values[i].tolist()
        found = [x.tolist() for x in values]
        dist.destroy_process_group()
        return found
    except RuntimeError as error:
        return str(error)


def compiles(rank):
    """Rank 1's graph takes longer to capture; others wait for it meanwhile."""
    with world() as (device, _):

        def step(x):
            y = functional.all_reduce(x, "sum", dist.group.WORLD)
            for _ in range(300 if rank == 1 else 1):
                y = (y * 1.5).sin() / 1.5 + x
            return functional.all_reduce(y, "sum", dist.group.WORLD)

        x = torch.full((4,), rank + 1.0).to(device)
        dist.all_reduce(x)
        compiled = torch.compile(step, backend="openxla")
        found = [compiled(x / (i + 2)).tolist() for i in range(3)]
        return found, [step(x.cpu() / (i + 2)).tolist() for i in range(3)]


def asks_for_shapes(rank):
    """Rank 1 asks for shapes, which is no operator, while a thread runs what is pending."""
    with world() as (device, store):
        wrong = ""
        for i in range(3):
            x = torch.full((2, 3), rank + 1.0).to(device)
            fresh = [x[:, : n % 3 + 1] * n for n in range(100)]
            dist.all_reduce(x)
            if rank == 0:
                x.tolist()
                store.set(f"shapes {i}", "")
                continue
            while not store.check([f"shapes {i}"]):
                time.sleep(0.003)
                for n, y in enumerate(fresh):
                    if y.shape != (2, n % 3 + 1):
                        wrong = f"{n}: {y.shape}"
        return wrong


def uses_tensors(rank, how):
    """A thread of rank 1 has something to do with tensors again and again, and never runs it."""
    with world() as (device, store):
        x = torch.full((3,), rank + 1.0).to(device)
        n = torch.zeros(1).to(device)
        ended = threading.Event()

        def fetch():
            while not ended.wait(0.05):
                torch.ones(4).to(device) * 2

        thread = threading.Thread(target=fetch)
        if how == "thread" and rank == 1:
            thread.start()
        dist.all_reduce(x)
        if rank == 0:
            x.tolist()
            store.set(how, "")
        while rank and not store.check([how]):
            time.sleep(0.05)
            if how == "polls":
                n = n + 1
        ended.set()
        if thread.is_alive():
            thread.join()
        return x.tolist()


def waits_for(rank, how):
    """How many programs have run when something is over that a rank waits for; nobody reads."""
    with world() as (device, _):
        size = dist.get_world_size()
        x = torch.full((2,), rank + 1.0).to(device)
        rows = torch.ones(size).to(device)
        torch_xla.sync(wait=True)
        before = ran()
        dist.all_reduce(x)
        dist.all_reduce(x)
        assert ran() == before
        if how == "barrier":
            dist.barrier()
        elif how == "group":
            dist.new_group([0, 1])
        elif how == "splits":  # of which each rank knows its own alone
            dist.all_to_all_single(torch.empty(size, device=device), rows, [1] * size, [1] * size)
        elif how == "messages":
            work = dist.isend(rows, dst=1) if rank == 0 else None
            work = dist.irecv(rows, src=0) if rank == 1 else work
            if work is not None:
                work.wait()
        elif how == "asks":
            work = dist.barrier(async_op=True)
            while not work.is_completed():
                time.sleep(0.01)
        if how != "end":
            return ran() - before, x.tolist()
    return ran() - before, x.tolist()


def is_slow(rank, rounds):
    """Rank 1 takes long for each step, and uses tensors all the time: it needs no help."""
    with world() as (device, _):
        x = torch.full((2,), 1.0).to(device)
        for step in range(rounds):
            if step == 3:
                before = ran(), compiled()
            dist.all_reduce(x, op=dist.ReduceOp.MAX)
            for _ in range(10):
                x = x * 1.5
                time.sleep(0.06 * (rank == 1))
            x = x / 1.5**10
            torch_xla.sync()
        after = ran(), compiled()
        return [a - b for a, b in zip(after, before, strict=True)], x.tolist()


def is_late(rank, limit_s, late_s):
    """The last rank comes later than its group waits."""
    _init(timeout=datetime.timedelta(seconds=limit_s))
    x = torch.ones(4).to("xla")
    dist.all_reduce(x)
    first = x.tolist()
    if rank == 2:
        time.sleep(late_s)
    dist.all_reduce(x)
    try:
        return first, x.tolist()
    except RuntimeError as error:
        return first, str(error)


def wakes_often(rank, rounds):
    """Rank 0 waits now and then, for as long as others need to have it run by another thread."""
    chance = random.Random(rank)
    with world() as (device, store):
        store = dist.PrefixStore("wakes", store)
        x = torch.full((8,), rank + 1.0).to(device)
        for i in range(rounds):
            dist.all_reduce(x)
            if rank == 1:
                x.tolist()
                store.set(str(i), "")
            else:
                end = time.monotonic() + chance.choice((0.0, 0.2, 0.45, 0.5, 0.55, 0.7))
                while time.monotonic() < end:
                    time.sleep(chance.choice((0.0, 0.05, 0.3)))
                    y = x[: chance.randint(1, 8)] * 2 + 1
                    assert y.shape[0] == y.numel()
                    assert x.shape == (8,)
                store.wait([str(i)])
            x = x / 2 + i
        return x.tolist()


def calls_in_threads(rank):
    """A thread of a rank calls, while another reads what is of the rank alone."""
    with world() as (device, _):
        group = dist.new_group([0, 1, 2])
        x = torch.full((4,), rank + 1.0).to(device)
        own = torch.zeros(4).to(device)
        read = []

        def reads():
            for i in range(4):
                read.append((own + i).tolist()[0])

        for _ in range(5):
            thread = threading.Thread(target=reads)
            thread.start()
            dist.all_reduce(x, group=group)
            thread.join()
            x = x / 3
        return x.tolist(), read


def each(rank):
    """TORCH_XLA_CC_CALLS=each: a call runs what is pending, and is compared before."""
    with world() as (device, _):
        x = torch.full((3,), rank + 1.0).to(device)
        torch_xla.sync(wait=True)
        before = ran()
        dist.all_reduce(x)
        dist.all_reduce(x)
        at_once = ran() - before
        group = dist.new_group([0, 1, 2])
        try:
            if rank:
                dist.all_reduce(x, group=group)
            else:
                dist.broadcast(x, src=0, group=group)
        except torch_xla_cc.CollectiveMismatchError as error:
            return at_once, str(error)
        return at_once, ""


def refused(rank):
    try:
        _init()
    except ValueError as error:
        return str(error)
    return ""
