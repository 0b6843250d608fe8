"""torch.compile of torch_xla_cc.functions and regions: one graph, and gradients that are right."""

import gc
import threading

import compiling
import pytest
import torch
from torch.fx import traceback

from torch_xla_cc import Channel, functions, regions
from torch_xla_cc._threads import compiling as _bridge


def all_reduce(at, x):
    return functions.all_reduce("sum", x * x)


def all_reduce_of_groups(at, x):
    return functions.all_reduce("average", x * x, 0.5, at.groups)


def all_reduce_max(at, x):
    return functions.all_reduce("max", x * x)


def all_reduce_mul_of_some(at, x):
    return functions.all_reduce("mul", x[:2] / 16, groups=[[0]])


def all_reduce_mul(at, x):
    return functions.all_reduce("mul", x[:2] / 16)


def all_gather(at, x):
    return functions.all_gather(x * x, 1, at.groups)


def reduce_scatter(at, x):
    return functions.reduce_scatter("sum", x * x)


def reduce_scatter_average(at, x):
    return functions.reduce_scatter("average", x * x, groups=at.groups)


def all_to_all(at, x):
    return functions.all_to_all(x * x, 0, 1)


def collective_permute(at, x):
    return functions.collective_permute(x * x, at.ring)


def send_recv(at, x):
    return functions.send_recv(x * x, Channel(at.ring))


def collective_broadcast(at, x):
    return functions.collective_broadcast(x * x, 1)


def gather(at, x):
    return functions.gather(x * x, 1)


def scatter(at, x):
    return functions.scatter(x * x, 1, groups=at.groups)


def copy_to_region(at, x):
    return regions.copy_to_region(x * 2) * x


def reduce_from_region(at, x):
    return regions.reduce_from_region(x * x)


def scatter_to_region(at, x):
    return regions.scatter_to_region(x * x, 0)


def gather_from_region(at, x):
    return regions.gather_from_region(x * x, 0, at.groups)


def sequence(at, x):
    whole = regions.gather_from_sequence(x * x, 0)
    return regions.reduce_scatter_to_sequence(whole * 2, 0)


def several(at, x):
    """With results that are used twice, and one that is not used."""
    whole = functions.all_gather(regions.copy_to_region(x), 0)
    functions.all_reduce("sum", whole)
    part = functions.reduce_scatter("sum", whole * whole)
    return part + x, regions.own_block(part * x, 0), functions.collective_broadcast(part, 0)


def uneven_all_gather(at, x):
    return functions.uneven_all_gather((x * x)[: at.rows[at.rank]], at.rows)


def uneven_reduce_scatter(at, x):
    return functions.uneven_reduce_scatter(x.tile(3, 1)[: sum(at.rows)], at.rows)


def uneven_all_to_all(at, x):
    return functions.uneven_all_to_all((x * x)[: sum(at.matrix[at.rank])], at.matrix)


def padded(at, x):
    whole = functions.uneven_all_gather((x * x)[: max(at.rows)], at.rows, padded=True)
    return functions.uneven_reduce_scatter(whole, at.rows, padded=True)


EVEN = [
    all_reduce,
    all_reduce_of_groups,
    all_reduce_max,
    all_reduce_mul,
    all_reduce_mul_of_some,
    all_gather,
    reduce_scatter,
    reduce_scatter_average,
    all_to_all,
    collective_permute,
    send_recv,
    collective_broadcast,
    gather,
    scatter,
    copy_to_region,
    reduce_from_region,
    scatter_to_region,
    gather_from_region,
    sequence,
    several,
]
UNEVEN = [uneven_all_gather, uneven_reduce_scatter, uneven_all_to_all, padded]
SOME = [all_reduce_of_groups, all_to_all, gather_from_region, several]


@pytest.mark.parametrize("function", EVEN + UNEVEN)
def test_forward_and_backward(function):
    compiling.check(2, function, backward=True)


@pytest.mark.parametrize("function", [*SOME, *UNEVEN])
def test_of_four_ranks(function):
    compiling.check(4, function, backward=True)


@pytest.mark.parametrize("function", SOME)
def test_aot_eager(function):
    compiling.check(2, function, "aot_eager", backward=True)


@pytest.mark.parametrize("function", EVEN)
def test_free_sizes(function):
    compiling.check(2, function, backward=True, sizes=compiling.FREE, dynamic=True)


@pytest.mark.parametrize("function", SOME)
def test_sizes_that_change(function):
    compiling.check(4, function, backward=True, sizes=compiling.FREE)


def test_what_fx_notes_is_of_a_thread():
    """Or one rank that runs a graph by fx takes the notes of another, which traces backward."""
    graph = torch.fx.symbolic_trace(lambda x: x + 1).graph
    node = next(iter(graph.nodes))
    node.meta["mark"] = 1
    found = {}

    def other():
        found["preserve"] = traceback.has_preserved_node_meta()
        with traceback.preserve_node_meta(), traceback.set_current_meta(node, "a pass"):
            found["notes"] = dict(traceback.get_current_meta())
            left.set()
            assert may_end.wait(20)

    left, may_end = threading.Event(), threading.Event()
    thread = threading.Thread(target=other)
    before = traceback.current_meta
    with _bridge.compiles_on_threads(2):
        with traceback.preserve_node_meta():
            traceback.set_grad_fn_seq_nr(5)
            thread.start()
            assert left.wait(20)
            assert traceback.current_meta["grad_fn_seq_nr"] == [5]
            traceback.reset_grad_fn_seq_nr()
            may_end.set()
            thread.join(20)
        assert not traceback.has_preserved_node_meta() and not traceback.get_current_meta()
    assert not found["preserve"] and found["notes"]["mark"] == 1
    assert [source.name for source in found["notes"]["from_node"]] == [node.name]
    assert traceback.current_meta is before and traceback.should_preserve_node_meta is False


def test_nothing_is_collected_while_ranks_trace():
    """Or test_sizes_that_change fails: FunctionalTensors lose their attributes."""
    found = []

    def backend(graph, _):
        found.append(gc.isenabled())
        return graph.forward

    with _bridge.compiles_on_threads(2):
        torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
        found.append(gc.isenabled())
    assert found == [False, True]
