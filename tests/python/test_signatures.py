"""Our xla_model takes what torch_xla's takes: names, order, kinds, defaults; and the new forms."""

import inspect

import pytest
import torch
import torch_xla
import worlds
from torch_xla.core import xla_model as stock

from torch_xla_cc import Channel
from torch_xla_cc import xla_model as xm

NAMES = [
    "all_gather",
    "all_gather_bucketized",
    "all_reduce",
    "all_to_all",
    "collective_broadcast",
    "collective_permute",
    "recv",
    "reduce_scatter",
    "reduce_scatter_bucketized",
    "send",
]


def parameters(function):
    return list(inspect.signature(function).parameters.values())


@pytest.mark.parametrize("name", NAMES)
def test_parameters_of_torch_xla_come_first(name):
    theirs = parameters(getattr(stock, name))
    ours = parameters(getattr(xm, name))
    assert [(p.name, p.kind) for p in ours[: len(theirs)]] == [(p.name, p.kind) for p in theirs]
    for their, our in zip(theirs, ours, strict=False):
        if their.default is not inspect.Parameter.empty:
            assert our.default == their.default, our.name
            assert type(our.default) is type(their.default), our.name


@pytest.mark.parametrize("name", NAMES)
def test_parameters_of_our_own_may_be_left_out(name):
    count = len(parameters(getattr(stock, name)))
    for own in parameters(getattr(xm, name))[count:]:
        assert own.default is not inspect.Parameter.empty
        # recv(shape, channel, dtype): a shape has no dtype, and torch_xla's form takes no shape.
        assert own.kind is inspect.Parameter.KEYWORD_ONLY or (name, own.name) == ("recv", "dtype")


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_annotated_and_documented(name):
    function = getattr(xm, name)
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(p.annotation is not inspect.Parameter.empty for p in parameters(function))
    assert function.__doc__


@pytest.mark.parametrize("constant", [name for name in dir(stock) if name.startswith("REDUCE_")])
def test_reduce_constants(constant):
    assert getattr(xm, constant) == getattr(stock, constant)


def forms_of_two(rank):
    values = torch.arange(4.0, device=torch_xla.device()) + 10 * rank
    gathered = xm.all_gather(values)
    scattered = xm.reduce_scatter(xm.REDUCE_SUM, values, groups=[[0, 1]])
    reduced = xm.all_reduce(xm.REDUCE_SUM, values)
    return gathered.tolist(), scattered.tolist(), reduced.tolist()


def test_forms_without_the_arguments_that_torch_xla_wants():
    results = worlds.run(2, forms_of_two)
    for rank, (gathered, scattered, reduced) in enumerate(results):
        assert gathered == [0, 1, 2, 3, 10, 11, 12, 13]
        assert scattered == [[10, 12], [14, 16]][rank]
        assert reduced == [10, 12, 14, 16]


def forms_of_four(rank):
    values = torch.arange(2.0, device=torch_xla.device()) + 10 * rank
    moved = xm.collective_permute(values, pairs=[[0, 2], [1, 3]])
    exchanged = xm.all_to_all(torch.arange(4.0, device=values.device) + 10 * rank, 0, 0)
    channel = Channel(pairs=[[3, 0]])
    xm.send(values, channel)
    received = xm.recv((2,), channel)
    by_number = None
    if rank == 0:
        xm.send(values, 5)
    if rank == 1:
        by_number = xm.recv((2,), 5).tolist()
    return moved.tolist(), exchanged.tolist(), received.tolist(), by_number


def test_forms_of_the_proposal():
    results = worlds.run(4, forms_of_four)
    for rank, (moved, exchanged, received, by_number) in enumerate(results):
        assert moved == [[0, 0], [0, 0], [0, 1], [10, 11]][rank]
        assert exchanged == [rank, 10 + rank, 20 + rank, 30 + rank]
        assert received == ([30, 31] if rank == 0 else [0, 0])
        assert by_number == ([0, 1] if rank == 1 else None)
