"""Functions for torch.compile with collectives in them, each called with changing inputs.

A function takes the group, then tensors. What it gives without torch.compile, on CPU tensors that
gloo serves, says what is right, on each call.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch_xla
import torch_xla.debug.metrics as metrics

import torch_xla_cc.distributed  # noqa: F401 (registers xla_cc)

CALLS = 3


def start() -> int:
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    return dist.get_world_size()


def all_reduce(group, x):
    return functional.all_reduce(x * 2, "sum", group) + 1


def all_gather(group, x):
    return functional.all_gather_tensor(x + 1, 1, group) * 3


def reduce_scatter(group, x):
    return functional.reduce_scatter_tensor(x, "max", 0, group) - x[:1]


def all_to_all(group, x):
    y = functional.all_to_all_single(x * 2, None, None, group)
    return functional.all_reduce(y + 1, "sum", group)


def broadcast(group, x):
    return functional.broadcast(x, 1, group) + x


def permute(group, x):
    size = dist.get_world_size(group)
    return functional.permute_tensor(x.flatten(), [*range(1, size), 0], group) + 1


def lists(group, x):
    found = functional.all_reduce_coalesced([x, x + 1], "sum", group)
    found += functional.all_gather_into_tensor_coalesced([x * 2, x[:1]], group)
    found += functional.reduce_scatter_tensor_coalesced([x, x - 1], "sum", [0, 0], group)
    return [y * 2 for y in found]


def several(group, x):
    """One behind the other, and one whose result is not used."""
    y = functional.all_reduce(x, "sum", group)
    z = functional.all_gather_tensor(y * x, 0, group)
    functional.all_reduce(z, "max", group)
    return functional.reduce_scatter_tensor(z, "sum", 0, group) + y


def in_place(group, x):
    """What dynamo rewrites."""
    size = dist.get_world_size(group)
    y = x * 2
    dist.all_reduce(y, group=group)
    whole = torch.empty(size * x.shape[0], x.shape[1], device=x.device)
    dist.all_gather_into_tensor(whole, y + x, group=group)
    part = torch.empty_like(x)
    dist.reduce_scatter_tensor(part, whole * 2, group=group)
    parts = [torch.empty_like(x) for _ in range(size)]
    dist.all_gather(parts, part, group=group)
    exchanged = torch.empty_like(x)
    dist.all_to_all_single(exchanged, parts[0] + x, group=group)
    x.add_(exchanged)
    return y, whole, part, exchanged


def gradient(group, x):
    y = functional.all_gather_tensor_autograd(x * 2, 0, group)
    z = functional.reduce_scatter_tensor_autograd(y * y, "sum", 0, group)
    return (z * x).sum()


def gradient_of_all_to_all(group, x):
    """Its own inverse, of equal parts: the gradient is 8 x. With torch_xla, torch has none."""
    if x.device.type == "cpu":
        y = functional.all_to_all_single(x.detach() * 2, None, None, group)
        return (y * y).sum() + (4 * x * x - (4 * x * x).detach()).sum()
    y = functional.all_to_all_single_autograd(x * 2, None, None, group)
    return (y * y).sum()


FUNCTIONS = [
    all_reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
    broadcast,
    permute,
    lists,
    several,
    in_place,
    gradient,
    gradient_of_all_to_all,
]


def results(function, group, device, rank, size):
    """What the function gives, and what it leaves, call by call."""
    found = []
    for call in range(CALLS):
        x = (torch.arange(4.0 * size) + 10 * rank + call).reshape(2 * size, 2).to(device)
        found.append(of_call(function, group, x))
    return found


def of_call(function, group, x):
    """What it gives of x, and what it leaves in x, or as its gradient."""
    if function.__name__.startswith("gradient"):
        x.requires_grad_()
    out = function(group, x)
    if x.requires_grad:
        out.backward()
        x = x.grad
    out = out if isinstance(out, (list, tuple)) else [out]
    return [y.detach().cpu() for y in (*out, x)]


def compiles() -> int:
    data = metrics.metric_data("CompileTime")
    return 0 if data is None else data[0]


def both(rank, name, backend, members=None):
    """By call: compiled on XLA, and as it is on the CPU."""
    start()
    function = globals()[name]
    group = dist.new_group(members) if members else dist.group.WORLD
    if members and rank not in members:
        return [], []
    size = dist.get_world_size(group)
    compiled = torch.compile(function, backend=backend, fullgraph=True)
    ours = results(compiled, group, torch_xla.device(), rank, size)
    return ours, results(function, group, "cpu", rank, size)


def all_of_them(rank, names, backend):
    return [both(rank, name, backend) for name in names]


def programs(rank):
    """What a compiled function issues and compiles: the first call, and three more with a step."""
    start()

    def step(x, group):
        y = functional.all_reduce(x * 2, "sum", group)
        return functional.all_gather_tensor(y + rank - rank, 0, group)

    compiled = torch.compile(step, backend="openxla", fullgraph=True)
    device = torch_xla.device()
    group = dist.group.WORLD
    counts, found = [], []
    for call in range(4):
        x = torch.full((2,), float(rank + call)).to(device)
        found.append(compiled(x, group).cpu()[:1].item())
        counts.append((compiles(), metrics.metric_data("RunCachedGraphInputData")[0]))
        dist.barrier()
    return found, counts


def mixed(rank):
    """One rank does not compile what the others do."""
    start()
    x = torch.full((2,), float(rank), device=torch_xla.device())
    group = dist.group.WORLD
    function = all_reduce if rank == 1 else torch.compile(all_reduce, backend="openxla")
    return [function(group, x + call).tolist() for call in range(2)]


def differ(rank):
    """The ranks run compiled functions whose collectives differ."""
    start()
    x = torch.ones(2, 2, device=torch_xla.device())
    compiled = torch.compile(all_reduce if rank else all_gather, backend="openxla")
    try:
        compiled(dist.group.WORLD, x)
    except RuntimeError as error:
        text = str(error)
    group = dist.new_group(list(range(dist.get_world_size())))
    dist.all_reduce(x, group=group)
    return text, x.tolist()


def without_tensors(rank):
    """Ranks share what is compiled: it is right, or an error."""
    start()

    def fill():
        return functional.all_reduce(torch.ones(2, device="xla"), "sum", dist.group.WORLD)

    dist.barrier()
    compiled = torch.compile(fill, backend="openxla", fullgraph=True)
    try:
        return [compiled().tolist() for _ in range(2)]
    except RuntimeError as error:
        return str(error)
