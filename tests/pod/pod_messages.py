"""What ranks of the pod do with messages in their graphs; called by test_pod_messages.py."""

from __future__ import annotations

import random
import time
from datetime import timedelta

import programs
import torch
import torch.distributed as dist
import torch_xla

import torch_xla_cc.distributed  # noqa: F401 (registers the backend)
from torch_xla_cc import _C

MIB = 1 << 18  # elements of float32


def messages():
    """Both ends of what is in the block are in it."""
    return _C.call_mode(messages=True)


def recorded(after=-1.0):
    """When this rank's last call was issued, and how its messages after that time went.

    Ranks are kept, and so is what they recorded in other tests.
    """
    calls = [c for c in _C.recorded_calls(dist.get_rank()) if c["issued"] > after]
    messages = {c["through"] for c in calls if c["call"].startswith(("send", "recv"))}
    return max((c["issued"] for c in calls), default=after), messages


def of(value, elements=3):
    return torch.full((elements,), float(value), device="xla")


def swapped(rank, mib, batch, cut=False, ways="graph"):
    """Both send, and then receive, more than a link has room for."""
    before, (last, _) = programs.ran(), recorded()
    other, x, y = 1 - rank, of(rank + 1, mib * MIB), of(0, mib * MIB)
    with messages():
        if batch:
            ops = [dist.P2POp(dist.irecv, y, other), dist.P2POp(dist.isend, x, other)]
            works = dist.batch_isend_irecv(ops)
        else:
            works = [dist.isend(x, other)]
            if cut:
                torch_xla.sync()
            works.append(dist.irecv(y, other))
        for work in works:
            work.wait()
        assert all(work.is_completed() for work in works)
    assert recorded(last)[1] == {ways}
    return (y * 2).unique().tolist(), programs.ran() - before


def passed_on(rank, size, steps):
    """A ring, each step with what came before; programs of the last steps."""
    following, before = (rank + 1) % size, (rank - 1) % size
    ran = []
    for step in range(steps):
        first = programs.ran()
        x = of(rank + step)
        for _ in range(size - 1):
            y = torch.empty_like(x)
            with messages():
                dist.isend(x, following).wait()
                dist.irecv(y, before).wait()
            x = y + 1
        dist.all_reduce(x)
        torch_xla.sync()
        found = x.tolist()
        ran.append(programs.ran() - first)
    return found, ran[-2:]


def waited_in_another_order(rank):
    """Messages go by the order in which receives were posted."""
    found = []
    with messages():
        if rank == 0:
            for value in range(4):
                dist.isend(of(value), 1)
        elif rank == 1:
            ys = [of(-1) for _ in range(4)]
            works = [dist.irecv(y, 0) for y in ys]
            for i in (2, 0, 3, 1):
                assert works[i].wait()
                found.append(ys[i][0].item())
    dist.barrier()
    return found


def beside_others(rank):
    """Messages of the host, and of any rank, beside those of the graph; one to oneself."""
    x, y, z, own = of(rank + 1), of(0), of(0), of(0)
    other, (last, _) = 1 - rank, recorded()
    with messages():
        dist.isend(x, other)
        got = dist.irecv(y, other)
        sent = dist.isend(x * 5, rank)
        dist.irecv(own, rank).wait()
        sent.wait()
        got.wait()
    assert recorded(last)[1] == {"graph", "host"}  # with the other; with oneself
    last, _ = recorded()
    if rank == 0:
        dist.send(x * 10, other)
    else:
        dist.recv(z)
    assert recorded(last)[1] == {"host"}
    return y.tolist(), own.tolist(), z.tolist()


def _kinds():
    bits = torch.tensor([[True, False], [False, True]])
    return [
        bits,
        torch.arange(6).reshape(2, 3),
        torch.arange(5, dtype=torch.int8),
        torch.randn(2, 3, dtype=torch.bfloat16),
        torch.randn(3).to(torch.float8_e5m2),
        torch.randn(4, dtype=torch.complex64),
        torch.randn(2, 2, dtype=torch.float64),
        torch.tensor(3.5),
        torch.empty(0, 4),
    ]


def of_each_kind(rank):
    """Types and shapes, parts of tensors among them."""
    torch.manual_seed(1)
    wrong = []
    for x in _kinds():
        y = torch.zeros_like(x).to("xla")
        with messages():  # in the two directions they have no order
            if rank == 0:
                dist.send(x.to("xla"), 1)
                dist.recv(y, 1)
            else:
                sent = dist.isend(x.to("xla"), 0)
                dist.recv(y, 0)
                sent.wait()
        if not torch.equal(y.cpu().view(x.dtype), x):
            wrong.append((x.dtype, y.cpu()))
    whole = torch.zeros(4, 3, device="xla")
    with messages():
        if rank == 0:
            dist.send(torch.arange(12.0).reshape(3, 4).to("xla").t()[1], 1)
        else:
            dist.recv(whole[2], 0)
    return wrong, whole.tolist()


def tags_in_another_order(rank):
    """Those with a tag go through the host."""
    x, y = of(-1), of(-1)
    last, _ = recorded()
    with messages():
        if rank == 0:
            dist.isend(of(1), 1, tag=1)
            dist.isend(of(2), 1, tag=2)
        else:
            dist.recv(y, 0, tag=2)
            dist.recv(x, 0, tag=1)
    assert recorded(last)[1] == {"host"}
    dist.barrier()
    return x[0].item(), y[0].item()


def differ(rank, what):
    """What one rank sends is not what the other receives."""
    x = torch.empty(0, 4, device="xla") if what == "nothing" else of(1)
    y = of(0, 4 if what == "shape" else 3)
    group = [dist.new_group([0, 1]) for _ in range(2)]
    try:
        with messages():
            if rank == 0:
                dist.send(x, 1, group=group[0])
            elif rank == 1:
                dist.recv(y, 0, group=group[what == "group"])
                y.tolist()
        z = of(1)
        dist.all_reduce(z)
        return z.tolist()
    except RuntimeError as error:
        return str(error)


def never_sent(rank, sender):
    """The sender ends without it."""
    dist.init_process_group("xla_cc")
    if rank == sender:
        return []
    y = of(0)
    with messages():
        dist.recv(y, sender)
    try:
        return y.tolist()
    except RuntimeError as error:
        return [str(error)]


def waits_too_long(rank):
    """The sender does something else for longer than the groups of both allow."""
    dist.init_process_group("xla_cc", timeout=timedelta(seconds=9))
    y = of(0)
    if rank == 0:
        time.sleep(14)
        return ""
    try:
        with messages():
            dist.recv(y, 0)
        return str(y.tolist())
    except RuntimeError as error:
        return str(error)


def late(rank):
    """The sender comes later, and nothing else of it runs what it sends."""
    y = of(0)
    with messages():
        if rank == 0:
            time.sleep(4)
            dist.send(of(4), 1)
            time.sleep(4)
        else:
            dist.recv(y, 0)
    return y.tolist()


def sent_at_the_end(rank, mib):
    """The sender is at its end when the receiver looks; nothing else runs what it has pending."""
    dist.init_process_group("xla_cc")
    y = of(0, mib * MIB)
    if rank == 0:
        with messages():
            dist.isend(of(7, mib * MIB), 1)
        return []
    time.sleep(3)
    with messages():
        dist.recv(y, 0)
    return y.unique().tolist()


def left_with_what_is_not_taken(rank, mib):
    """Rank 1 ends while nobody takes what it sent; then others want it, or send to it."""
    dist.init_process_group("xla_cc")
    x = of(rank, mib * MIB)
    with messages():
        if rank == 1:
            dist.isend(x, 0)
            return ["left"]
        time.sleep(4 + 2 * rank)
        if rank == 0:
            dist.isend(x, 1)
            torch_xla.sync()
    try:
        if rank == 0:
            found = [x.unique().item()]
            time.sleep(5)  # not to be the one that has ended
            return found
        dist.all_reduce(x)
        return x.unique().tolist()
    except RuntimeError as error:
        return [str(error)]


def in_two_worlds(rank, left):
    """What a world that has ended left is not received in the next."""
    if left:
        with messages():
            if rank == 0:
                dist.isend(of(1), 1)
            else:
                dist.irecv(of(0), 0)
    dist.barrier()
    dist.destroy_process_group()
    dist.init_process_group("xla_cc")
    y = of(0)
    try:
        with messages():
            if rank == 0:
                dist.send(of(5), 1)
            else:
                dist.recv(y, 0)
        return y.tolist()
    except ValueError as error:
        return str(error)


def asked(rank):
    """Who only asks whether something has come may send what the other waits for."""
    other, y, z = 1 - rank, of(0), of(0)
    with messages():
        if rank == 0:
            work = dist.irecv(y, other)
            for _ in range(3):
                assert not work.is_completed()
            dist.isend(of(2), other)
            while not work.is_completed():
                time.sleep(0.001)
        else:
            dist.recv(z, other)
            dist.isend(z * 3, other)
    return y.tolist()


def without_end(rank, count):
    """Nobody reads: what is pending runs when it is long."""
    total = of(0)
    for value in range(count):
        y = of(0)
        with messages():
            if rank == 0:
                dist.isend(of(value), 1)
            else:
                dist.irecv(y, 0).wait()
        total += y
    return total[0].item()


def at_random(rank, size, seed, steps):
    """Messages between ranks and collectives of all, in one order of the world; each rank waits,
    reads and steps where it likes. What is wrong, by this rank."""
    shared, own = random.Random(seed), random.Random(f"{seed} {rank}")
    groups = [None, dist.new_group(list(range(size)))]
    wrong: list[str] = []
    waited: list = []
    held = of(rank, 1)
    expected = {other: float(other) for other in range(size)}

    def take(entry):
        work, y, value = entry
        work.wait()
        if own.random() < 0.5 and y[0].item() != value:
            wrong.append(f"{value}, not {y.tolist()}")
        return y

    for step in range(steps):
        if shared.random() < 0.15:
            while waited:
                take(waited.pop(0))
            x = held + 0
            dist.all_reduce(x)
            if x[0].item() != sum(expected.values()):
                wrong.append(f"sum in step {step}")
            continue
        a, b = shared.sample(range(size), 2)
        group, elements = shared.choice(groups), shared.choice([1, 3, 70_000, 400_000])
        with messages():
            if rank == a:
                dist.isend((held[:1] + step).expand(elements), b, group=group)
            elif rank == b:
                y = of(-1, elements)
                waited.append((dist.irecv(y, a, group=group), y, expected[a] + step))
        if shared.random() < 0.3:  # the receiver goes on from what it got
            if rank == b:
                while waited:
                    last = take(waited.pop(0))
                held = last[:1] + 0
            expected[b] = expected[a] + step
        elif waited and own.random() < 0.3:
            take(waited.pop(own.randrange(len(waited))))
        if own.random() < 0.1:
            torch_xla.sync()
    while waited:
        take(waited.pop(own.randrange(len(waited))))
    if held[0].item() != expected[rank]:
        wrong.append(f"holds {held.tolist()}, not {expected[rank]}")
    return wrong
