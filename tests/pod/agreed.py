"""What ranks that have to run the same programs do with calls that stay in the graph."""

import datetime
import os
import random
import time
import warnings

import programs
import staying
import torch
import torch.distributed as dist
import torch_xla
from torch.utils._python_dispatch import TorchDispatchMode

from torch_xla_cc._C import noted_calls
from torch_xla_cc._processes import world
from torch_xla_cc._runtime.device_tensors import needs_run

_LONG = 7  # what no world of these divides
_OPS = ("sum", "gather", "scatter", "local", "own", "write", "view", "drop")


def counts(rank, steps):
    """Programs run and compiled in each step of a small model, and its losses."""
    found, losses = [], []
    with staying.world() as (device, _):
        torch.manual_seed(0)
        weight = torch.randn(4, 3).to(device).requires_grad_()
        optimizer = torch.optim.SGD([weight], 0.1)
        torch.manual_seed(rank)
        x = torch.randn(5, 4).to(device)
        for _ in range(steps):
            before = programs.ran(), programs.compiled()
            optimizer.zero_grad()
            loss = (x @ weight).square().mean()
            loss.backward()
            dist.all_reduce(weight.grad)
            optimizer.step()
            found.append((programs.ran() - before[0], programs.compiled() - before[1]))
            losses.append(loss.item())
    return found, losses


def reduces(rank, steps):
    """Programs run and compiled in each step of a reduce to another root, and its values."""
    found = []
    with staying.world() as (device, _):
        x = torch.full((7,), rank + 1.0).to(device)
        for step in range(steps):
            before = programs.ran(), programs.compiled()
            dist.reduce(x, step % dist.get_world_size())
            torch_xla.sync()
            found.append((programs.ran() - before[0], programs.compiled() - before[1]))
        return found, x.tolist()


def leaves_differ(rank, steps):
    """Sums of what rank 0 computes of one input, others of two; torch_xla's hash is the same."""
    found = []
    with staying.world() as (device, _):
        a, b = torch.full((3,), rank + 2.0).to(device), torch.full((3,), 5.0).to(device)
        for _ in range(steps):
            y = (a + a) * b if rank == 0 else (a + b) * b
            dist.all_reduce(y)
            torch_xla.sync()
            found.append(y.tolist())
    return found


def _while(x):
    from torch._higher_order_ops.while_loop import while_loop

    from torch_xla_cc import xla_model

    def body(i, y):
        return i - 1, xla_model.all_reduce(xla_model.REDUCE_SUM, y)

    return while_loop(lambda i, y: i > 0, body, (torch.tensor(3).to(x.device), x))[1]


def _scan(x):
    """The same, of rows of which each is the sum of the one before."""
    from torch_xla.experimental.scan import scan

    from torch_xla_cc import functions, xla_model

    def body(carry, row):
        carry = functions.all_reduce(xla_model.REDUCE_SUM, carry + row)
        return carry, carry

    _, y = scan(body, x, torch.zeros(3, *x.shape, device=x.device))
    return y[-1]


def late_in_a_loop(rank, loop):
    """A call, a loop with calls in it, and a call; rank 1 comes when others take it for idle."""
    from torch_xla_cc._processes import said

    loop = {"while": _while, "scan": _scan}[loop]

    idle_ms, said._IDLE_MS = said._IDLE_MS, 500
    try:
        with staying.world() as (device, _):
            before, x, after = (
                torch.full((4,), (rank + 1.0) * more).to(device) for more in (1, 10, 100)
            )
            torch_xla.sync()
            if rank == 1:
                time.sleep(4.5)
            dist.all_reduce(before)
            kept = before + 1
            y = loop(x)
            dist.all_reduce(after)
            return [z[0].item() for z in (before, kept, y, after)]
    finally:
        said._IDLE_MS = idle_ms


def reads_alone(rank, reader, dropout):
    """What one rank reads between calls of all, and what all read later."""
    with staying.world() as (device, store):
        x = torch.full((50,), rank + 2.0).to(device)
        dist.all_reduce(x)
        kept = torch.nn.functional.dropout(x, 0.5) if dropout else x * 2
        dist.all_reduce(y := x + 1)
        alone = kept.tolist() if rank == reader else None
        if rank == reader:
            store.set("read", "")
        else:
            store.wait(["read"])
        dist.all_reduce(y)
        torch_xla.sync()
        return alone, kept.tolist(), y.tolist()


def validates(rank, readers, batches):
    """A loop in which some ranks read and none steps: what they read, and what it took."""
    with staying.world() as (device, _), torch.no_grad():
        torch.manual_seed(0)
        layer, total = torch.nn.Linear(6, 3).to(device), torch.zeros(3).to(device)
        read, compiled, held = [], [], []
        for batch in range(batches):
            found = layer(torch.full((6,), rank + batch / 8.0).to(device))
            dist.all_reduce(found)
            total += found
            if rank in readers:
                read.append(found.tolist())
            compiled.append(programs.compiled())
            held.append(len(noted_calls.tensors()))
        return (
            read,
            total.tolist(),
            compiled[-1] - compiled[batches // 2],
            max(held[batches // 2 :]),
        )


def captures_alone(rank):
    """One rank compiles a function while calls are pending."""
    with staying.world() as (device, _):
        x, z = torch.full((3,), rank + 1.0).to(device), torch.ones(2).to(device)
        dist.all_reduce(z)
        dist.all_reduce(z * 2)
        dist.all_reduce(x)
        y = torch.compile(lambda a: (a * 3).sin(), backend="openxla")(x) if rank == 0 else x * 3
        dist.all_reduce(x)
        return y.tolist(), x.tolist(), z.tolist()


def steps_alone(rank):
    """One rank steps after calls of which one needs the other, and nobody has what a third gave."""
    with staying.world() as (device, _):
        x = torch.full((3,), rank + 1.0).to(device)
        dist.all_reduce(x)
        dist.all_reduce(x)
        dist.all_reduce(x * 2)
        if rank == 0:
            torch_xla.sync()
        pending = needs_run(x)
        dist.all_reduce(x)
        return pending, x.tolist()


def leaves(rank):
    """All but one leave in good order, without a call that the first still reads."""
    staying._init()
    x = torch.full((2,), rank + 1.0).to(torch_xla.device())
    dist.all_reduce(x)
    read = x.tolist()
    if rank == 0:
        began = time.monotonic()
        try:
            dist.all_reduce(x)
            return read, x.tolist(), 0.0
        except RuntimeError as error:
            return read, str(error), time.monotonic() - began
    dist.destroy_process_group()
    return read


def random_program(rank, size, seed, steps, often=False):
    """Calls, and reads and steps of some ranks, as a seed has them, beside what they should be.

    With `often`, one rank reads in most turns, and steps are rare.
    """
    reads, steps_alone, steps_all = ((0.6, 0.0), 0.01, 0.03) if often else ((0.2, 0.2), 0.1, 0.1)
    chosen = random.Random(seed)  # the same on all ranks
    data = torch.Generator().manual_seed(seed)
    whole = [
        torch.randint(-3, 4, (size, _LONG), generator=data).double() for _ in range(3)
    ]  # by rank
    with staying.world() as (device, _), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensors = [x[rank].float().to(device) for x in whole]
        for _ in range(steps):
            op, i, j = chosen.choice(_OPS), chosen.randrange(3), chosen.randrange(3)
            readers = [r for r in range(size) if chosen.random() < reads[min(r, 1)]]
            steppers = [r for r in range(size) if chosen.random() < steps_alone]
            all_step = chosen.random() < steps_all
            _do(op, rank, size, tensors, whole, i, j)
            if rank in readers:
                assert tensors[i].tolist() == whole[i][rank].tolist(), (op, i, j)
            if all_step or rank in steppers:
                torch_xla.sync()
        assert world.active() is not None
        for x, expected in zip(tensors, whole, strict=True):
            assert x.tolist() == expected[rank].tolist()
    return True


def _do(op, rank, size, tensors, whole, i, j):
    """An operation on this rank's tensors, and on what all ranks' are to be."""
    x = tensors[i]
    if op == "sum":
        dist.all_reduce(x)
        whole[i] = whole[i].sum(0).expand(size, -1).clone()
    elif op == "gather":
        gathered = torch.empty(size * _LONG, device=x.device)
        dist.all_gather_into_tensor(gathered, x)
        tensors[j] = gathered.view(size, _LONG).sum(0)
        whole[j] = whole[i].sum(0).expand(size, -1).clone()
    elif op == "scatter":
        part = torch.empty(_LONG, device=x.device)
        dist.reduce_scatter_tensor(part, torch.cat([x + k for k in range(size)]))
        tensors[j] = part
        whole[j] = torch.stack([whole[i].sum(0) + size * k for k in range(size)])
    elif op == "local":
        tensors[j] = (x - tensors[j]).clamp(-50, 50)
        whole[j] = (whole[i] - whole[j]).clamp(-50, 50)
    elif op == "own":  # a constant of each rank
        tensors[j] = x % 7 + rank
        whole[j] = whole[i] % 7 + torch.arange(size)[:, None]
    elif op == "write":
        x[1:3] = tensors[j][2:4]
        whole[i][:, 1:3] = whole[j][:, 2:4].clone()
    elif op == "view":
        x[2:].clamp_(-9, 9)
        whole[i][:, 2:] = whole[i][:, 2:].clamp(-9, 9)
    elif op == "drop":
        tensors[j] = x * 1
        whole[j] = whole[i].clone()


def random_groups(rank, seed, steps):
    """Calls of four ranks: of all rows or columns of a mesh, of one of these, and of others."""
    chosen = random.Random(seed)
    data = torch.Generator().manual_seed(seed)
    whole = [torch.randint(-3, 4, (4, _LONG), generator=data).double() for _ in range(2)]
    with staying.world() as (device, _), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        meshes = [[[0, 1], [2, 3]], [[0, 2], [1, 3]], [[0, 1, 2, 3]], [[3, 0, 1]]]
        groups = [[(ranks, dist.new_group(ranks)) for ranks in mesh] for mesh in meshes]
        tensors = [x[rank].float().to(device) for x in whole]
        for _ in range(steps):
            i, mesh = chosen.randrange(2), chosen.choice(groups)
            calling = mesh if chosen.random() < 0.8 else [chosen.choice(mesh)]
            for ranks, group in calling:
                root = chosen.choice([*ranks, None, None])  # None: of all
                if rank not in ranks:
                    pass
                elif root is None:
                    dist.all_reduce(tensors[i], dist.ReduceOp.MAX, group)
                else:
                    dist.reduce(tensors[i], root, dist.ReduceOp.MAX, group)
                whole[i][ranks if root is None else root] = whole[i][ranks].max(0).values
            readers = [r for r in range(4) if chosen.random() < 0.2]
            if rank in readers:
                assert tensors[i].tolist() == whole[i][rank].tolist(), (i, calling)
            if chosen.random() < 0.2:
                torch_xla.sync()
            own = chosen.randrange(4)
            tensors[i] = tensors[i] + (rank == own)
            whole[i][own] += 1
        for x, expected in zip(tensors, whole, strict=True):
            assert x.tolist() == expected[rank].tolist()
    return True


class _Operators(TorchDispatchMode):
    """Those that a script calls."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def own_operators(rank):
    """What a mode of the script sees of a call that is noted, and of a read."""
    with staying.world() as (device, _), _Operators() as mode:
        x = torch.ones(5, device=device)
        dist.all_reduce(x)
        assert world.active() is not None
        if rank == 0:
            x.tolist()
        return mode.names


def steps_before_it_sends(rank):
    """A rank steps after a call that the other makes when it has a message of the first."""
    with staying.world() as (device, _):
        x, y = (torch.full((2,), rank + k).to(device) for k in (1.0, 5.0))
        dist.all_reduce(x)
        if rank == 0:
            dist.all_reduce(y)
            torch_xla.sync()
            dist.send(torch.ones(1).to(device), 1)
        elif rank == 1:
            dist.recv(torch.ones(1).to(device), 0)
            dist.all_reduce(y)
        else:
            dist.all_reduce(y)
        return x.tolist(), y.tolist(), world.active() is not None


def gives_up(rank, calls):
    """One of two groups makes a call, and waits for the other beside the graph; then all go on."""
    with staying.world() as (device, _), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        x = torch.full((2,), 3.0).to(device)
        torch_xla.sync()
        if rank < 2:
            dist.all_reduce(x, group=groups[0])
            dist.send(x, rank + 2)
        else:
            dist.recv(x, rank - 2)
        told = [
            str(w.message) for w in caught if "cannot be parts of one program" in str(w.message)
        ]
        read = x.tolist()
        gave_up = world.active() is None
        for _ in range(calls):
            dist.all_reduce(x)
            x = x / 4
        before = programs.ran()
        for _ in range(3):
            dist.all_reduce(x)
            x = x / 4
        return (read, len(told), gave_up), programs.ran() - before, x.tolist()


def writes_slowly(rank, seconds):
    """One rank does something on the host for a while; the others read what it has yet to call."""
    with staying.world() as (device, _), warnings.catch_warnings():
        warnings.simplefilter("error")
        x = torch.full((2,), rank + 1.0).to(device)
        if rank == 0:
            time.sleep(seconds)
        dist.all_reduce(x)
        return x.tolist(), world.active() is not None


def is_too_late(rank, limit, seconds):
    """The same, for longer than the world has time: what each rank is told, and when."""
    began = time.monotonic()
    staying._init(timeout=datetime.timedelta(seconds=limit))
    try:
        x = torch.full((2,), rank + 1.0).to(torch_xla.device())
        if rank == 0:
            time.sleep(seconds)
        dist.all_reduce(x)
        return x.tolist(), 0.0
    except RuntimeError as error:
        return str(error), time.monotonic() - began


def many(rank, calls):
    """More calls than may be pending, and what comes of them."""
    with staying.world() as (device, _):
        x = torch.full((2,), 2.0).to(device)
        for _ in range(calls):
            dist.all_reduce(x)
            x = x / 2
        return x.tolist()


def ends(rank):
    """One rank ends without its last call: what the others are told when they read, and when."""
    with staying.world() as (device, store):
        x = torch.full((2,), 2.0).to(device)
        dist.all_reduce(x)
        x.tolist()
        if rank == 0:
            os._exit(3)
        dist.all_reduce(x)
        began = time.monotonic()
        try:
            return x.tolist(), 0.0
        except RuntimeError as error:
            told = str(error), time.monotonic() - began
        store.add("told", 1)
        return told


def reads_what_is_written_through_views(rank):
    """After calls on views, one of which torch_xla keeps beside what is known, one rank reads."""
    with staying.world() as (device, _):
        x = torch.arange(24.0, device=device).reshape(4, 6) * (rank + 1)
        view = x[1]
        view.mul_(0.5)
        dist.all_reduce(view)
        x.as_strided((2, 3), (6, 2), 0).add_(0.25)
        dist.all_reduce(y := torch.ones(2, device=device))
        read = x.sum().item() if rank == 0 else None
        dist.all_reduce(y)
        return read, x.tolist(), y.tolist()
