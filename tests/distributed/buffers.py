"""Lists that are views of one buffer, each as a function of the rank."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch_xla

from torch_xla_cc.distributed import one_buffer


def start():
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    return dist.get_world_size(), torch_xla.device()


def error_of(call):
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""


def forms(size, device):
    """Lists of `size` tensors of two rows that fill a buffer, or a part of it, and that buffer."""
    buffer = torch.zeros(2 * size, 3, device=device)
    yield list(buffer.chunk(size)), buffer
    buffer = torch.zeros(size, 2, 3, device=device)
    yield list(buffer.unbind()), buffer
    buffer = torch.zeros(2 * size + 3, 3, device=device)
    yield [buffer[1 + 2 * i : 3 + 2 * i] for i in range(size)], buffer
    # As optimizers keep them: one long row, and tensors in it.
    buffer = torch.zeros(3_000_000, device=device)
    parts = buffer[2_000_000:].narrow(0, 5, 6 * size)
    yield [part.view(2, 3) for part in parts.split(6)], buffer


def gathers(rank):
    size, device = start()
    found = []
    for views, buffer in forms(size, device):
        with one_buffer():
            dist.all_gather(views, torch.full((2, 3), rank + 1.0, device=device))
        found.append(([view.cpu() for view in views], buffer.cpu()))
    return found


def scatters(rank):
    size, device = start()
    found = []
    for views, buffer in forms(size, device):
        buffer += torch.arange(buffer.numel(), device=device).view(buffer.shape)
        output = torch.zeros(2, 3, device=device)
        with one_buffer():
            dist.reduce_scatter(output, views)
        found.append((output.cpu(), views[rank].cpu() * size))
    return found


def in_place(rank):
    """The input is this rank's part of the output."""
    size, device = start()
    buffer = torch.zeros(size * 2, device=device)
    parts = list(buffer.chunk(size))
    parts[rank].fill_(rank + 1.0)
    with one_buffer():
        dist.all_gather(parts, parts[rank])
    into = torch.zeros(size * 2, device=device)
    into.chunk(size)[rank].fill_(rank + 1.0)
    dist.all_gather_into_tensor(into, into.chunk(size)[rank])
    return buffer.tolist(), into.tolist()


def refused(rank):
    size, device = start()
    x = torch.ones(2, device=device)
    buffer = torch.zeros(8 * size, device=device)
    lists = {
        "apart": [torch.zeros(2, device=device) for _ in range(size)],
        "order": [buffer[2 * i : 2 * i + 2] for i in reversed(range(size))],
        "gap": [buffer[4 * i : 4 * i + 2] for i in range(size)],
        "strided": [buffer[4 * i : 4 * i + 4 : 2] for i in range(size)],
    }
    found = {}
    for name, outputs in lists.items():
        with one_buffer():
            found[name] = error_of(lambda outputs=outputs: dist.all_gather(outputs, x))
    views = list(buffer[: 2 * size].chunk(size))
    found["overlap"] = error_of(lambda: dist.all_gather(views, buffer[1:3]))
    dist.all_gather(lists["gap"], x)  # without asking for a buffer: copied
    return found, buffer.cpu()


def mixed(rank):
    """Rank 0 passes chunks of a buffer, the others tensors of their own."""
    size, device = start()
    found = []
    for shape in ((2, 3), (4,)):
        buffer = torch.zeros(size * shape[0], *shape[1:], device=device)
        own = [torch.zeros(shape, device=device) for _ in range(size)]
        outputs = list(buffer.chunk(size)) if rank == 0 else own
        dist.all_gather(outputs, torch.full(shape, rank + 1.0, device=device))
        part = torch.zeros(shape, device=device)
        dist.reduce_scatter(part, outputs)
        found.append(([output.cpu() for output in outputs], part.cpu()))
    return found


def alone():
    """Calls in a group of one rank: what each gives of a tensor, as a tensor beside it."""
    one = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]

    def into(call):
        def run(x):
            y = torch.zeros(4, device=x.device)
            call(y, x)
            return y

        return run

    here = dist.get_rank()

    def to_itself(y, x):
        ends = [dist.P2POp(dist.isend, x, here, one), dist.P2POp(dist.irecv, y, here, one)]
        for work in dist.batch_isend_irecv(ends):
            work.wait()

    yield from {
        "batch": into(to_itself),
        "all_gather": into(lambda y, x: dist.all_gather([y], x, group=one)),
        "all_gather_into": into(lambda y, x: dist.all_gather_into_tensor(y, x, group=one)),
        "gather": into(lambda y, x: dist.gather(x, [y], here, group=one)),
        "scatter": into(lambda y, x: dist.scatter(y, [x], here, group=one)),
        "reduce_scatter": into(lambda y, x: dist.reduce_scatter(y, [x], group=one)),
        "reduce_scatter_into": into(lambda y, x: dist.reduce_scatter_tensor(y, x, group=one)),
        "all_to_all": into(lambda y, x: dist.all_to_all([y], [x], group=one)),
        "all_to_all_single": into(lambda y, x: dist.all_to_all_single(y, x, group=one)),
        "all_to_all_sizes": into(lambda y, x: dist.all_to_all_single(y, x, [4], [4], group=one)),
        "functional all_reduce": lambda x: funcol.all_reduce(x, "sum", one),
        "functional all_gather": lambda x: funcol.all_gather_tensor(x, 0, one),
        "functional reduce_scatter": lambda x: funcol.reduce_scatter_tensor(x, "sum", 0, one),
        "functional all_to_all": lambda x: funcol.all_to_all_single(x, None, None, one),
        "functional broadcast": lambda x: funcol.broadcast(x, 0, one),
        "coalesced": lambda x: funcol.all_gather_into_tensor_coalesced([x], one)[0],
    }.items()


def apart(rank):
    """What each call of one rank gave, once the one and then the other tensor has changed."""
    _, device = start()
    found = {}
    for name, call in alone():
        for changed in range(2):
            x = torch.arange(4.0, device=device)
            torch_xla.sync()
            both = [x, funcol.wait_tensor(call(x))]
            torch_xla.sync()
            both[changed].add_(1)
            torch_xla.sync()
            found[name, changed] = [y.tolist() for y in both]
    return found


def repeated(rank):
    """Outputs of which two elements are one of their buffer: all are refused, on all ranks."""
    size, device = start()
    x = torch.ones(2, device=device)

    def again(n):
        return torch.zeros(9, device=device)[1:2].expand(n)

    every = {
        "all_reduce": lambda: dist.all_reduce(again(2)),
        "broadcast": lambda: dist.broadcast(again(2), 0),
        "reduce": lambda: dist.reduce(again(2), 0),
        "all_gather": lambda: dist.all_gather([again(2) for _ in range(size)], x),
        "into": lambda: dist.all_gather_into_tensor(again(2 * size), x),
        "scatter": lambda: dist.scatter(again(2), [x] * size if rank == 0 else None, 0),
        "reduce_scatter": lambda: dist.reduce_scatter(again(2), [x] * size),
        "scattered": lambda: dist.reduce_scatter_tensor(again(2), x.repeat(size)),
        "all_to_all": lambda: dist.all_to_all([again(2)] * size, [x] * size),
        "single": lambda: dist.all_to_all_single(again(2 * size), x.repeat(size)),
        "recv": lambda: dist.recv(again(2), (rank + 1) % size),
        "window": lambda: dist.all_reduce(torch.zeros(5, device=device).unfold(0, 3, 1)),
    }
    errors = {name: error_of(call) for name, call in every.items()}
    # Every other element has a place of its own.
    buffer = torch.zeros(4 * size, device=device)
    dist.all_gather_into_tensor(buffer[::2], x)
    # So have parts of a part that autograd knows nothing of.
    thirds = torch.zeros(12, device=device).chunk(3)
    dist.all_reduce(torch.ones(4, device=device) + thirds[0])
    for part in (thirds[2].detach().unfold(0, 2, 2), thirds[1].data.view(2, 2).expand(2, 2)):
        dist.broadcast(part, 0)
        dist.all_gather([part.detach()[i] for i in range(size)], x)
    errors["of a part"] = error_of(lambda: dist.all_reduce(thirds[2].detach()[:1].expand(3)))
    return errors, buffer.tolist(), [third.tolist() for third in thirds]


COPIED = (
    *(torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn),
    *(torch.float8_e5m2, torch.complex64, torch.bool, torch.uint8, torch.int8, torch.int16),
    *(torch.int32, torch.int64),
)


def copies(rank):
    """Types of which a result in a world of one has other bits than the operand, or its buffer."""
    from torch_xla_cc import xla_model as xm

    wrong = []
    for dtype in COPIED:
        bits = torch.arange(15 * dtype.itemsize, dtype=torch.uint8) * 17
        x = (bits % 2 == 1)[:15] if dtype == torch.bool else bits.view(dtype)
        x = x.reshape(3, 5)
        x[0, 0] = -0.0 if dtype.is_floating_point else 0
        operand = x.to(torch_xla.device())
        torch_xla.sync()
        result = xm.collective_permute(operand, [[0, 0]])
        torch_xla.sync(wait=True)
        pointers = {torch_xla._XLAC._unsafe_buffer_pointer(y) for y in (operand, result)}
        same = torch.equal(*(y.cpu().view(torch.uint8) for y in (operand, result)))
        wrong += [] if same and len(pointers) == 2 else [str(dtype)]
    return wrong
