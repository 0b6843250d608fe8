"""Matmuls in steps around a ring: values and gradients, against the plain forms and NumPy."""

import hashlib

import numpy as np
import pytest
import torch
import torch_xla
import worlds

from torch_xla_cc import regions

HALVES = {4: [[0, 1], [2, 3]], 8: [[0, 2, 4, 6], [1, 3, 5, 7]]}
SCRAMBLED = {4: [[3, 0, 2, 1]], 8: [[5, 0, 3, 6], [7, 2, 1, 4]]}


def tensors(rank, *shapes, dtype=torch.float64):
    """Other ones on each rank."""
    generator = torch.Generator().manual_seed(rank)
    made = [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [x.to(dtype).to(torch_xla.device()).requires_grad_() for x in made]


def plain(op, x, weight, dim, groups):
    if op is regions.all_gather_matmul:
        return regions.gather_from_sequence(x, dim, groups) @ weight
    return regions.reduce_scatter_to_sequence(x @ weight, dim, groups)


def shapes(op, ranks, dim, rest):
    """Of x, with five rows a rank along `dim`, and of the weight."""
    shape = [*rest, 37]
    shape.insert(dim, 5 if op is regions.all_gather_matmul else 5 * ranks)
    return shape, (37, 11)


def differences(rank, cases):
    """How far values and gradients are from the plain form's, of each case."""
    found = []
    for op, ranks, dim, rest, groups in cases:
        x, weight = tensors(rank, *shapes(op, ranks, dim, rest))
        sides = []
        for form in (lambda *args: plain(op, *args), op):  # noqa: B023 (called here)
            y = form(x, weight, dim, groups)
            sides.append((y, *torch.autograd.grad(y.pow(2).sum(), (x, weight))))
        found.append([(a - b).abs().max().item() for a, b in zip(*sides, strict=True)])
    return found


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
def test_as_the_plain_form(world):
    layouts = [None, *(by_size[world] for by_size in (HALVES, SCRAMBLED) if world in by_size)]
    cases = [
        (op, len(groups[0]) if groups else world, dim, rest, groups)
        for op in (regions.all_gather_matmul, regions.matmul_reduce_scatter)
        for groups in layouts
        for dim, rest in ((0, ()), (0, (2,)), (1, (2,)))
    ]
    cases = cases if world < 8 else cases[::2]
    for found in worlds.run(world, differences, cases, timeout_s=120):
        assert np.max(found) < 1e-10


def of_numpy(rank, ranks):
    """One layer, and what the ranks have of it."""
    x, first, second = tensors(rank, (3, 6), (6, 4), (4, 6))
    hidden = regions.all_gather_matmul(x, first)
    y = regions.matmul_reduce_scatter(hidden, second)
    return [one.detach().cpu().numpy() for one in (x, first, second, hidden, y)]


@pytest.mark.parametrize("world", [2, 3])
def test_as_numpy(world):
    ranks = worlds.run(world, of_numpy, world)
    whole = np.concatenate([x for x, *_ in ranks])
    total = sum(whole @ first @ second for _, first, second, *_ in ranks)
    for rank, (_, first, _, hidden, y) in enumerate(ranks):
        np.testing.assert_allclose(hidden, whole @ first, rtol=1e-12)
        np.testing.assert_allclose(y, total[3 * rank : 3 * rank + 3], rtol=1e-12)


def program(rank, groups):
    """What a layer's gradients run."""
    x, first, second = tensors(rank, (3, 6), (6, 4), (4, 6))
    torch_xla.sync()
    y = regions.all_gather_matmul(x, first, 0, groups)
    y = regions.matmul_reduce_scatter(y, second, 0, groups)
    found = torch.autograd.grad(y.pow(2).sum(), (x, first, second))
    text = torch_xla._XLAC._get_xla_tensors_hlo([y, *found])
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("groups", [None, SCRAMBLED[4], [[2, 0], [3, 1]]], ids=str)
def test_all_ranks_run_one_program(groups):
    assert len(set(worlds.run(4, program, groups))) == 1


def errors(rank, dtype):
    """How far the sums of the ring, and of a reduce-scatter, are from those in float64."""
    x, weight = tensors(rank, (8 * 16, 64), (64, 32), dtype=dtype)
    exact = regions.reduce_scatter_to_sequence(x.double() @ weight.double())
    found = (op(x, weight) for op in (regions.matmul_reduce_scatter, summed))
    return [((y.double() - exact).norm() / exact.norm()).item() for y in found]


def summed(x, weight):
    return regions.reduce_scatter_to_sequence(x @ weight)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_errors_are_those_of_a_reduce_scatter(dtype):
    for ring, native in worlds.run(8, errors, dtype):
        assert ring < 1.5 * native + torch.finfo(dtype).eps / 4


def which_gradients(rank):
    x, weight = tensors(rank, (4, 6), (6, 8))
    found = []
    for op in (regions.all_gather_matmul, regions.matmul_reduce_scatter):
        op(x.detach(), weight).sum().backward()
        op(x, weight.detach()).sum().backward()
        found.append(op(x.detach(), weight.detach()).requires_grad)
        found.append([x.grad.shape == x.shape, weight.grad.shape == weight.shape])
        x.grad = weight.grad = None
    twice = regions.all_gather_matmul(x, weight) + regions.all_gather_matmul(x, 2 * weight)
    (of_x,) = torch.autograd.grad(twice.sum(), x)
    (once,) = torch.autograd.grad((regions.gather_from_sequence(x) @ (3 * weight)).sum(), x)
    return found, (of_x - once).abs().max().item()


def test_only_what_requires_it_gets_a_gradient():
    found, difference = worlds.run(2, which_gradients)[0]
    assert found == [False, [True, True], False, [True, True]]
    assert difference < 1e-12


def refusals(rank):
    x, weight, square = tensors(rank, (6, 4), (4, 8), (4, 4))
    gather, scatter = regions.all_gather_matmul, regions.matmul_reduce_scatter
    said = []
    for call in (
        lambda: gather(x, weight, dim=1),
        lambda: scatter(x, weight, dim=-1),
        lambda: gather(x, weight, dim=2),
        lambda: gather(x, weight.mT),
        lambda: gather(x[0], weight),
        lambda: gather(x, weight.float()),
        lambda: gather(x, weight, groups=[[0, 1, 2], [3]]),
        lambda: scatter(square, weight, groups=[[0, 1]]),
        lambda: scatter(square, weight, groups=[[0, 1], [1, 2]]),
        lambda: scatter(x, weight),
    ):
        try:
            call()
        except ValueError as error:
            said.append(str(error))
    for call in (
        lambda: gather([x], weight),
        lambda: scatter(x, 3),
        lambda: gather(x, weight, dim=0.0),
        lambda: gather(x, weight, groups=3),
        lambda: scatter(square, weight, groups=[["0"]]),
    ):
        try:
            call()
        except TypeError as error:
            said.append(str(error))
    return said


def test_refusals():
    said = worlds.run(4, refusals)[0]
    for text, message in zip(
        said,
        (
            "all_gather_matmul: dim = 1 with value of [6, 4] and weight of [4, 8], but it must be",
            "matmul_reduce_scatter: dim = -1 with value of [6, 4]",
            "all_gather_matmul: dim = 2 with",
            "all_gather_matmul: value of [6, 4] and weight of [8, 4], but it must be [..., k]",
            "all_gather_matmul: value of [4] and",
            "all_gather_matmul: value is torch.float64 and weight is torch.float32",
            "all_gather_matmul: groups = [[0, 1, 2], [3]], but they must be of one size",
            "matmul_reduce_scatter: groups = [[0, 1]], but they must be of one size",
            "matmul_reduce_scatter: groups = [[0,1],[1,2]], but it must be disjoint, and rank 1",
            "matmul_reduce_scatter: dimension 0 has the size 6, but it must be a multiple of 4",
            "all_gather_matmul: value is list, but it must be one tensor",
            "matmul_reduce_scatter: weight is int, but it must be a tensor",
            "all_gather_matmul: dim = 0.0, but it must be an int",
            "all_gather_matmul: groups = 3 (int), but it must be None or lists of ranks",
            "matmul_reduce_scatter: groups = '0' (str), but it must be an int",
        ),
        strict=True,
    ):
        assert text.startswith(message)


def of_other_types(rank):
    """Of complex numbers, and of what autocast makes of two types: beside the plain form."""
    found = []
    for dtype, second, autocast in (
        (torch.complex64, torch.complex64, False),
        (torch.float32, torch.float32, True),
        (torch.bfloat16, torch.float32, True),
    ):
        (x,) = tensors(rank, (4, 6), dtype=dtype)
        (weight,) = tensors(rank + 9, (6, 8), dtype=second)
        if dtype.is_complex:
            x = (x * (1 + 2j)).detach().requires_grad_()
        for op in (regions.all_gather_matmul, regions.matmul_reduce_scatter):
            sides = []
            for form in (lambda *args: plain(op, *args), op):  # noqa: B023 (called here)
                with torch.autocast("xla", torch.bfloat16, enabled=autocast):
                    y = form(x, weight, 0, None)
                loss = (y * y.conj()).real.float().sum()
                sides.append((y.detach(), *torch.autograd.grad(loss, (x, weight))))
            found.append(
                [
                    (one.dtype == other.dtype, ((one - other).abs().max() / one.abs().max()).item())
                    for one, other in zip(*sides, strict=True)
                ]
            )
    return found


def test_other_types():
    for found in worlds.run(2, of_other_types, timeout_s=120):
        for case in found:
            assert all(same for same, _ in case)
            assert max(difference for _, difference in case) < 0.02, case
        assert max(difference for _, difference in found[0]) < 1e-6


def compiled(rank):
    """By torch.compile, beside eager."""
    x, weight, second = tensors(rank, (4, 6), (6, 8), (8, 6))

    def layer(x, weight, second):
        hidden = regions.all_gather_matmul(x, weight).relu()
        return regions.matmul_reduce_scatter(hidden, second)

    sides = []
    for form in (layer, torch.compile(layer, backend="openxla", fullgraph=True)):
        y = form(x, weight, second)
        sides.append((y, *torch.autograd.grad(y.pow(2).sum(), (x, weight, second))))
    return [(a - b).abs().max().item() for a, b in zip(*sides, strict=True)]


def test_under_torch_compile():
    for found in worlds.run(2, compiled, timeout_s=120):
        assert max(found) < 1e-10
