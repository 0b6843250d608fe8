"""A rank's own part, by a table: what comes of it is x[start : start + size], and its gradient."""

import re

import pytest
import torch
import torch_xla
import worlds

from torch_xla_cc import _C
from torch_xla_cc._runtime import rank_slice

RANKS = 3
STARTS = [4, 0, 2]
DTYPES = [torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.uint8, torch.complex64]
DTYPES += [torch.uint16, torch.float8_e5m2]


def is_sliced(rank, dtype, dim):
    shape = [2, 3]
    shape[dim] = 7
    x = torch.arange(21)[: shape[0] * shape[1]].reshape(shape).to(dtype)
    y = rank_slice.rank_slice(x.to("xla"), dim, 3, STARTS)
    return y.dtype == dtype and y.cpu().equal(x.narrow(dim, STARTS[rank], 3))


def wrongly_sliced(rank):
    return [(t, dim) for t in DTYPES for dim in (0, 1, -1) if not is_sliced(rank, t, dim)]


def test_each_rank_has_its_own():
    assert worlds.run(RANKS, wrongly_sliced) == [[]] * RANKS


def of_a_gradient(rank):
    x = torch.randn(2, 7, device=torch_xla.device()).requires_grad_()
    y = rank_slice.rank_slice(x, 1, 3, STARTS)
    (y * y).sum().backward()
    expected = torch.zeros(2, 7)
    expected[:, STARTS[rank] : STARTS[rank] + 3] = 2 * y.detach().cpu()
    return x.grad.cpu().equal(expected)


def test_the_gradient_is_zero_around_it():
    assert all(worlds.run(RANKS, of_a_gradient))


def of_the_gradient_of_a_gradient(rank):
    x = torch.arange(7.0).to("xla").requires_grad_()
    y = rank_slice.rank_slice(x * x, 0, 3, STARTS)
    (gradient,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), x)
    expected = torch.zeros(7)
    part = slice(STARTS[rank], STARTS[rank] + 3)
    expected[part] = 12 * torch.arange(7.0)[part] ** 2
    return second.cpu().equal(expected)


def test_the_gradient_of_the_gradient():
    assert all(worlds.run(RANKS, of_the_gradient_of_a_gradient))


def places(rank):
    return rank_slice.place([5, 0, 2], torch_xla.device()).item()


def test_a_number_of_each_rank():
    assert worlds.run(RANKS, places) == [5, 0, 2]


REFUSED = [
    (2, 1, [0, 0, 0], "dim = 2, but it must be an axis of f32[2,7]: 0 to 1 (X1)"),
    (-3, 1, [0, 0, 0], "dim = -1, but it must be an axis"),
    (1, 8, [0, 0, 0], "size = 8, but it must be 0 to 7"),
    (1, 3, [0, 0], "len(starts) = 2, but it must be 3"),
    # XLA moves what would end behind the end: other elements, in silence.
    (1, 3, [0, 5, 0], "starts = 5, but it must be 0 to 4"),
    (1, 3, [0, -1, 0], "starts = -1, but it must be 0 to 4"),
]


def of_what_is_refused(rank):
    x = torch.zeros(2, 7, device=torch_xla.device())
    for dim, size, starts, said in REFUSED:
        with pytest.raises(ValueError, match=re.escape(said)):
            rank_slice.rank_slice(x, dim, size, starts)


def test_what_is_refused():
    worlds.run(RANKS, of_what_is_refused)


def module(numbers):
    return _C.rank_slice_module(torch.empty(()), [6, 2], 0, 2, numbers, False)


def test_the_program_is_the_same_on_all_ranks():
    before = _C.thread_target()
    _C.set_thread_target("tpu", 3)
    try:
        one = module(STARTS)
        assert one == module(STARTS) != module([0, 2, 4])
    finally:
        _C.set_thread_target(*(before or (None, 0)))
