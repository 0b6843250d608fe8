"""torch.compile of collectives without gradients: right on each call, with values that change.

torch.ops.xla_cc.* as they are, and in the forms of xla_model: into tensors of the caller's, in
lists, on channels.
"""

import compiling
import pytest
import torch
import torch_xla
import worlds

from torch_xla_cc import Channel, regions
from torch_xla_cc import xla_model as xm

OPS = torch.ops.xla_cc


def op_all_gather(at, x):
    return OPS.all_gather([x, x[:1]], 0, []) + OPS.all_gather([x], 1, at.groups)


def op_all_reduce(at, x):
    found = OPS.all_reduce([x, x[:1]], "sum", 0.5, 1.0, [])
    return found + OPS.all_reduce([x], "premultiplied_sum", 1.0, 2.0, at.groups)


def op_reduce_scatter(at, x):
    return OPS.reduce_scatter([x, x + 1], "max", 1.0, 1.0, 0, None, at.groups)


def op_collective_permute(at, x):
    return OPS.collective_permute([x, x[:1]], at.ring) + OPS.collective_permute([x], [])


def op_all_to_all(at, x):
    return OPS.all_to_all([x, x * 2], 0, 1, None, at.groups)


def op_collective_broadcast(at, x):
    return OPS.collective_broadcast([x, x[:1]], 1, [])


def op_send_and_recv(at, x):
    return OPS.recv(OPS.send([x], 7, at.ring), 7, at.ring)


def op_uneven(at, x):
    whole = OPS.uneven_all_gather([x[: max(at.rows)]], at.rows, [])
    part = OPS.uneven_reduce_scatter(whole, "sum", 1.0, 1.0, at.rows, [])
    most = max(map(sum, at.matrix))
    return whole + part + OPS.uneven_all_to_all([x[:most]], at.matrix, [])


def in_groups_of_several_sizes(at, x):
    groups = [list(range(1, at.size)), [0]]
    return [xm.all_gather(x, 1, groups), xm.all_reduce("average", x, groups=groups)]


def in_place_of_the_argument(at, x):
    xm.all_reduce("sum", [x], groups=at.groups)
    return x * 2


def in_place_and_nothing_else(at, x):
    xm.collective_broadcast([x], 1)


def in_place_of_a_view(at, x):
    xm.all_reduce("max", [x[1:3]])
    return x + 1


def in_place_of_a_list(at, x):
    values = [x * 2, x + 1]
    xm.all_reduce("sum", values)
    x.add_(values[1])
    return values


def into_tensors(at, x):
    whole = torch.empty(x.shape[0] * at.size, 2, device=x.device)
    part = torch.zeros(x.shape[0] // at.size, 2, device=x.device)
    xm.reduce_scatter("sum", x, 1.0, 0, at.size, output=part)
    return xm.all_gather(x, output=whole), whole, part


def in_buckets(at, x):
    found = xm.all_gather_bucketized([x, x + 1, x * 2], bucket_cap_mb=0)
    return found + xm.reduce_scatter_bucketized("sum", [x, x + 1], 1.0, 0, at.size)


def channels(at, x):
    """Two channels, and two messages on one."""
    first, second = Channel(at.ring), Channel(at.ring, tag=1)
    xm.send(x, first)
    xm.send(x * 2, second)
    xm.send(x * 3, first)
    received = xm.recv(x, first)
    return received, xm.recv((x.shape[0], 2), second), xm.recv(x, first)


def uneven(at, x):
    whole = xm.uneven_all_gather(x[: at.rows[at.rank]] * 2, at.rows)
    part = xm.uneven_reduce_scatter("sum", whole, at.rows)
    return whole, part, xm.uneven_all_to_all(x[: sum(at.matrix[at.rank])], at.matrix)


def not_used(at, x):
    xm.all_reduce("sum", x)
    return x + 1


def the_argument_twice(at, x):
    return x, xm.all_reduce("sum", x), x


def in_a_chain(at, x):
    for k in range(3):
        x = xm.collective_permute(x, at.ring) + xm.all_reduce("average", x * k, groups=at.groups)
    return x


def of_nothing(at, x):
    return xm.all_reduce("sum", x[:0]), xm.all_gather(x[:0])


def of_types(at, x):
    found = [xm.all_reduce("xor", x.to(torch.int32)), xm.all_gather(x.sum())]
    return [*found, xm.all_reduce("max", x.to(torch.bfloat16))]


def of_the_rank(at, x):
    """An int that is another one on each rank."""
    return xm.all_gather(x * at.rank)


FUNCTIONS = [
    op_all_gather,
    op_all_reduce,
    op_reduce_scatter,
    op_collective_permute,
    op_all_to_all,
    op_collective_broadcast,
    op_send_and_recv,
    op_uneven,
    in_groups_of_several_sizes,
    in_place_of_the_argument,
    in_place_and_nothing_else,
    in_place_of_a_view,
    in_place_of_a_list,
    into_tensors,
    in_buckets,
    channels,
    uneven,
    not_used,
    the_argument_twice,
    in_a_chain,
    of_nothing,
    of_types,
    of_the_rank,
]
SOME = [op_collective_broadcast, in_place_of_a_list, channels, in_a_chain, of_the_rank]
FREE = [in_place_of_the_argument, in_place_of_a_view, into_tensors, uneven]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_values(function):
    compiling.check(2, function)


@pytest.mark.parametrize("function", SOME)
def test_of_four_ranks(function):
    compiling.check(4, function)


@pytest.mark.parametrize("function", SOME)
def test_aot_eager(function):
    compiling.check(2, function, "aot_eager")


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", SOME + FREE)
def test_free_sizes(function, dynamic):
    compiling.check(2, function, sizes=compiling.FREE, dynamic=dynamic)


def _one_captures(rank):
    """Rank 0 compiles, later than rank 1 runs what it calls, and again for another type."""
    found = []
    function = torch.compile(in_a_chain, backend="openxla") if rank == 0 else in_a_chain
    for dtype in (torch.float32, torch.float32, torch.bfloat16):
        x = torch.ones(8, 2, dtype=dtype, device=torch_xla.device())
        found.append(
            function(compiling.at(rank), x).tolist() == in_a_chain(compiling.at(rank), x).tolist()
        )
    return found


def test_capturing_meets_nobody():
    assert worlds.run(2, _one_captures) == [[True] * 3] * 2


def _linear_model(rank):
    """Losses of a model with regions, as it is and compiled."""
    losses = []
    for compiles in (False, True):
        model = _Parallel(rank).to(torch_xla.device())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run = torch.compile(model, backend="openxla", fullgraph=True) if compiles else model
        losses.append([])
        for step in range(5):
            x = (torch.arange(24.0).reshape(6, 4) + step).sin().to(torch_xla.device())
            optimizer.zero_grad()
            loss = run(x).square().mean()
            loss.backward()
            optimizer.step()
            torch_xla.sync()
            losses[-1].append(loss.item())
        counts = compiling.compiles()
    return losses, counts


class _Parallel(torch.nn.Module):
    """Two layers, of which each rank has a part."""

    def __init__(self, rank):
        super().__init__()
        size = torch_xla.runtime.global_device_count()
        seeded = torch.Generator().manual_seed(0)  # ranks that are threads share the other
        first, second = torch.randn(4, 8, generator=seeded), torch.randn(8, 4, generator=seeded)
        self.first = torch.nn.Parameter(first.chunk(size, 1)[rank].clone())
        self.second = torch.nn.Parameter(second.chunk(size, 0)[rank].clone())

    def forward(self, x):
        hidden = (regions.copy_to_region(x) @ self.first).relu()
        return regions.reduce_from_region(hidden @ self.second)


@pytest.mark.parametrize("world", [2, 4])
def test_model(world):
    for (eager, compiled), _ in worlds.run(world, _linear_model):
        assert compiled == pytest.approx(eager, rel=1e-6)
        assert eager[-1] < eager[0]


def _settings(rank):
    """torch's settings of sizes before and after ranks call a function that has free ones."""
    names = ("assume_static_by_default", "automatic_dynamic_shapes")
    before = [getattr(torch._dynamo.config, name) for name in names]
    compiled = torch.compile(in_a_chain, backend="aot_eager", dynamic=True)
    device = torch_xla.device()
    xm.all_gather(torch.ones(1, device=device)).tolist()  # none is in it yet
    for rows in (8, 16):
        compiled(compiling.at(rank), torch.ones(rows, 2, device=device)).tolist()
    xm.all_gather(torch.ones(1, device=device)).tolist()  # all have left it
    return before, [getattr(torch._dynamo.config, name) for name in names]


def test_free_sizes_are_not_left_on():
    for before, after in worlds.run(2, _settings):
        assert before == after


def _order(rank):
    from torch.fx.passes.utils import fuser_utils

    return fuser_utils.topo_sort is sorted


def test_what_is_captured_stays_in_the_order_of_the_program():
    """On all ranks and all the time: a rank that captures gives up the lock while it waits."""
    assert worlds.run(2, _order) == [True, True]
