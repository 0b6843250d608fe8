"""Gradients of collectives, by torch's own gradcheck in float64.

A collective is one function of the tensors of all ranks. So every rank checks the same function at
the same time: of all inputs to all outputs, of which it computes its own part by the collective and
gets those of the others by plain all_gathers of bits.
"""

import numpy as np
import pytest
import torch
import torch_xla
import worlds
from torch.autograd import gradcheck

from torch_xla_cc import Channel, functions, regions
from torch_xla_cc import xla_model as xm

SHAPE = (4, 2)


def gathered(x, shapes):
    """The tensors of all ranks, on the CPU, flat and behind each other."""
    longest = max(int(np.prod(shape)) for shape in shapes)
    filled = torch.nn.functional.pad(x.detach().reshape(-1), (0, longest - x.numel()))
    parts = xm.all_gather(filled).cpu().reshape(len(shapes), longest)
    return torch.cat([part[: int(np.prod(s))] for part, s in zip(parts, shapes, strict=True)])


class Joint(torch.autograd.Function):
    """All inputs, flat, to all outputs."""

    @staticmethod
    def forward(ctx, rank, op, shapes, values):
        ctx.save_for_backward(values)
        ctx.rank, ctx.op, ctx.shapes = rank, op, shapes
        y = op(own(values, rank, shapes[0]))
        return gathered(y, shapes[1])

    @staticmethod
    def backward(ctx, gradient):
        (values,) = ctx.saved_tensors
        x = own(values, ctx.rank, ctx.shapes[0]).requires_grad_()
        with torch.enable_grad():
            y = ctx.op(x)
        (g,) = torch.autograd.grad(y, x, own(gradient, ctx.rank, ctx.shapes[1]))
        return None, None, None, gathered(g, ctx.shapes[0])


def own(values, rank, shapes):
    """The part of a rank."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    part = values.detach()[sum(sizes[:rank]) : sum(sizes[: rank + 1])]
    return part.reshape(shapes[rank]).to(torch_xla.device())


def check(rank, name, twice):
    """gradcheck of an op, and of its gradient as a function of what comes back.

    Each entry by itself on two ranks; on more, along random directions.
    """
    world = xm.all_reduce("sum", torch.ones(1, device=torch_xla.device())).int().item()
    op, shapes = OPS[name](world)
    # Each rank's output has its own shape; all ranks have to know them.
    shape = op(torch.zeros(shapes[rank], dtype=torch.float64, device=torch_xla.device())).shape
    known = xm.all_gather(torch.tensor([list(shape)], device=torch_xla.device()))
    outputs = [tuple(line) for line in known.tolist()]
    fast = world > 2
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(
        sum(int(np.prod(s)) for s in shapes), generator=generator, dtype=torch.float64
    ).requires_grad_()
    assert gradcheck(lambda v: Joint.apply(rank, op, (shapes, outputs), v), values, fast_mode=fast)
    if twice:
        x = own(values, rank, shapes)

        def back(g):
            with torch.enable_grad():
                at = x.clone().requires_grad_()
                return torch.autograd.grad(op(at), at, g, create_graph=True)[0]

        back_values = torch.randn(
            sum(int(np.prod(s)) for s in outputs), generator=generator, dtype=torch.float64
        ).requires_grad_()
        assert gradcheck(
            lambda v: Joint.apply(rank, back, (outputs, shapes), v), back_values, fast_mode=fast
        )
    return True


def alike(op, shape=SHAPE):
    return lambda world: (op, [shape] * world)


def halves(world):
    return [list(range(world // 2)), list(range(world // 2, world))]


def strided(world):
    return [list(range(start, world, 2)) for start in range(2)]


def ring(world):
    return [(rank, (rank + 1) % world) for rank in range(world)]


def sizes(world):
    return [rank + 1 for rank in range(world - 1)] + [0]


def matrix(world):
    return [[(a + 2 * b) % 3 for b in range(world)] for a in range(world)]


OPS = {
    "all_reduce sum": alike(lambda x: functions.all_reduce("sum", x, 0.5)),
    "all_reduce average": alike(lambda x: functions.all_reduce("average", x)),
    "all_reduce halves": lambda n: (
        lambda x: functions.all_reduce("sum", x, groups=halves(n)),
        [SHAPE] * n,
    ),
    "all_reduce average, one alone": lambda n: (
        lambda x: functions.all_reduce("average", x, groups=[list(range(n - 1))]),
        [SHAPE] * n,
    ),
    "all_reduce max": alike(lambda x: functions.all_reduce("max", x, 2.0)),
    "all_reduce min": alike(lambda x: functions.all_reduce("min", x)),
    "all_reduce mul": alike(lambda x: functions.all_reduce("mul", x, 2.0)),
    "all_reduce mul, one alone": lambda n: (
        lambda x: functions.all_reduce("mul", x, 2.0, [list(range(n - 1))]),
        [SHAPE] * n,
    ),
    "all_gather": alike(functions.all_gather),
    "all_gather dim 1": alike(lambda x: functions.all_gather(x, 1)),
    "all_gather scalar": alike(functions.all_gather, ()),
    "all_gather strided": lambda n: (
        lambda x: functions.all_gather(x, 0, strided(n)),
        [SHAPE] * n,
    ),
    "all_gather, one alone": lambda n: (
        lambda x: functions.all_gather(x, 0, [list(range(n - 1)), [n - 1]]),
        [SHAPE] * n,
    ),
    "reduce_scatter": lambda n: (
        lambda x: functions.reduce_scatter("sum", x, 0.5),
        [(2 * n, 2)] * n,
    ),
    "reduce_scatter average dim 1": lambda n: (
        lambda x: functions.reduce_scatter("average", x, 1.0, 1),
        [(2, 2 * n)] * n,
    ),
    "reduce_scatter strided": lambda n: (
        lambda x: functions.reduce_scatter("sum", x, groups=strided(n)),
        [(n, 2)] * n,
    ),
    "all_to_all": lambda n: (lambda x: functions.all_to_all(x, 0, 1), [(n, 2)] * n),
    "all_to_all same dim": lambda n: (lambda x: functions.all_to_all(x, 1, 1), [(2, n)] * n),
    "collective_permute": lambda n: (
        lambda x: functions.collective_permute(x, ring(n)),
        [SHAPE] * n,
    ),
    "collective_permute of one": alike(lambda x: functions.collective_permute(x, [(1, 0)])),
    "send_recv": lambda n: (
        lambda x: functions.send_recv(x, Channel(ring(n)[:-1])),
        [SHAPE] * n,
    ),
    "collective_broadcast": alike(lambda x: functions.collective_broadcast(x, 1)),
    "collective_broadcast halves": lambda n: (
        lambda x: functions.collective_broadcast(x, 0, halves(n)),
        [SHAPE] * n,
    ),
    "collective_broadcast, one alone": lambda n: (
        lambda x: functions.collective_broadcast(x, 0, [list(range(n - 1))]),
        [SHAPE] * n,
    ),
    "gather": alike(lambda x: functions.gather(x, 1)),
    "scatter": lambda n: (lambda x: functions.scatter(x, 1), [(2 * n, 2)] * n),
    "uneven_all_gather": lambda n: (
        lambda x: functions.uneven_all_gather(x, sizes(n)),
        [(size, 2) for size in sizes(n)],
    ),
    "uneven_reduce_scatter": lambda n: (
        lambda x: functions.uneven_reduce_scatter(x, sizes(n), 0.5),
        [(sum(sizes(n)), 2)] * n,
    ),
    "uneven_all_to_all": lambda n: (
        lambda x: functions.uneven_all_to_all(x, matrix(n)),
        [(sum(row), 2) for row in matrix(n)],
    ),
    "gather_from_sequence": alike(regions.gather_from_sequence),
    "reduce_scatter_to_sequence": lambda n: (
        regions.reduce_scatter_to_sequence,
        [(2 * n, 2)] * n,
    ),
    # Of both that they multiply.
    "all_gather_matmul": alike(lambda x: regions.all_gather_matmul(x, x[:2].mT)),
    "matmul_reduce_scatter": lambda n: (
        lambda x: regions.matmul_reduce_scatter(x, x[:2]),
        [(2 * n, 2)] * n,
    ),
}


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("name", OPS)
def test_gradients(name, world):
    assert worlds.run(world, check, name, "mul" not in name, timeout_s=120) == [True] * world


def ties(rank):
    x = torch.tensor([1.0, float(rank), 2.0, float("nan")], device=torch_xla.device())
    x.requires_grad_()
    functions.all_reduce("max", x)[:3].sum().backward()
    return x.grad[:3].tolist()


def test_the_gradient_of_a_maximum_is_shared():
    # What all have goes to each in equal parts, of four gradients; what one has goes there whole.
    assert worlds.run(4, ties) == [[1.0, 0.0, 1.0]] * 3 + [[1.0, 4.0, 1.0]]


def changed_in_place(rank, kind):
    x = torch.full((3,), rank + 1.0, device=torch_xla.device(), requires_grad=True)
    y = functions.all_reduce(kind, x * 1)
    y += 1
    y.sum().backward()
    return y.tolist(), x.grad.tolist()


@pytest.mark.parametrize(
    ("kind", "value", "gradients"),
    [("sum", 4.0, [2.0, 2.0]), ("mul", 3.0, [4.0, 2.0]), ("max", 3.0, [0.0, 2.0])],
)
def test_a_result_may_be_changed_in_place(kind, value, gradients):
    expected = [([value] * 3, [gradient] * 3) for gradient in gradients]
    assert worlds.run(2, changed_in_place, kind) == expected


def reduced(rank, kind, groups):
    """With a gradient and without."""
    torch.manual_seed(rank if kind in ("mul", "product") else 0)  # else all have the same
    x = torch.randn(64, device=torch_xla.device())
    plain = xm.all_reduce(kind, x, 3.0, groups)
    # Of a product of three the order is free.
    return plain.tolist(), functions.all_reduce(kind, x.requires_grad_(), 3.0, groups).tolist()


@pytest.mark.parametrize("kind", ["max", "min", "mul", "product"])
@pytest.mark.parametrize("groups", [[[0, 1]], [[0, 1, 2], [3]]], ids=["none", "sizes"])
def test_a_gradient_changes_no_number(kind, groups):
    for plain, found in worlds.run(4, reduced, kind, groups):
        assert found == pytest.approx(plain, rel=1e-6) if kind == "mul" else found == plain


def not_finite(rank):
    x = torch.full((2,), float("inf"), device=torch_xla.device()).requires_grad_()
    (x_grad,) = torch.autograd.grad(functions.collective_broadcast(x, 1), x, x.detach())
    return functions.gather(x, 1).tolist(), x_grad.tolist()


def test_what_is_not_finite_stays_with_the_root():
    inf = float("inf")
    for rank, found in enumerate(worlds.run(2, not_finite)):
        assert found == (([inf] * 4, [inf] * 2) if rank == 1 else ([0.0] * 4, [0.0] * 2))


def refusals(rank):
    x = torch.ones(8, device=torch_xla.device()).requires_grad_()
    said = []
    for call in (
        lambda: functions.all_reduce("xor", x),
        lambda: functions.reduce_scatter("max", x),
        lambda: functions.reduce_scatter("average", x, groups=[[0, 1, 2], [3]]),
        lambda: regions.own_block(x[:6]),
        lambda: regions.own_block(x, groups=[[0, 1]]),
        lambda: regions.scatter_to_region(x, groups=[[0, 1, 2], [3]]),
        lambda: regions.gather_from_region(x, groups=[[0, 1], [2]]),
        lambda: functions.gather(x, 7),
        lambda: functions.scatter(x, -1),
        lambda: functions.gather(x, 2, 0, [[0, 1]]),
        lambda: functions.scatter(x, 3, 0, [[0], [1, 3]]),
        lambda: functions.collective_broadcast(x, 7),
        lambda: functions.all_reduce("nope", x),
        lambda: functions.reduce_scatter("nope", x),
        lambda: regions.scatter_to_region(x, 5),
    ):
        try:
            call()
        except ValueError as error:
            said.append(str(error))
    for call in (
        lambda: functions.all_gather([x]),
        lambda: functions.all_reduce("sum", value=None),
        lambda: functions.send_recv(x, 3),
        lambda: regions.copy_to_region("x"),
        lambda: functions.collective_broadcast(x, "a"),
    ):
        try:
            call()
        except TypeError as error:
            said.append(str(error))
    # Without a gradient they are those of xla_model.
    plain = functions.reduce_scatter("max", x.detach() * rank).tolist()
    return said, plain


def test_what_has_no_gradient():
    said, plain = worlds.run(4, refusals)[0]
    assert plain == [3.0, 3.0]
    for text, message in zip(
        said,
        (
            "all_reduce: reduce_type = 'xor' has no gradient",
            "reduce_scatter: reduce_type = 'max' has no gradient here",
            "reduce_scatter: groups have the sizes [1, 3]",
            "own_block: dimension 0 has the size 6, but it must be a multiple of 4",
            "own_block: groups = [[0, 1]] leave out the ranks [2, 3], but they must be of one size",
            "scatter_to_region: groups = [[0, 1, 2], [3]] are of the sizes [1, 3], but they must",
            "gather_from_region: groups = [[0, 1], [2]] are of the sizes [1, 2], but they must",
            "gather: root = 7, but it must be a rank of the world, 0 to 3 (B1)",
            "scatter: root = -1, but it must be a rank of the world, 0 to 3 (B1)",
            "gather: root = 2, but it must be in a group, and [[0, 1]] leaves it out (B2)",
            "scatter: root = 3, but it must be at a position that every group has",
            "collective_broadcast: root = 7, but it must be a rank of the world, 0 to 3 (B1)",
            "all_reduce: reduce_type = 'nope', but it must be sum, product (mul)",
            "reduce_scatter: reduce_type = 'nope', but it must be sum, product (mul)",
            "scatter_to_region: dim = 5, but it must be a dimension of value",
            "all_gather: value is list, but it must be one tensor",
            "all_reduce: value is NoneType, but it must be one tensor",
            "send_recv: channel is 3, but it must be a Channel",
            "copy_to_region: value is str, but it must be one tensor",
            "collective_broadcast: root = 'a', but it must be an int",
        ),
        strict=True,
    ):
        assert text.startswith(message)


def layers(rank, form):
    """Gradients of two layers, in parallel; and those of the same layers, whole."""
    generator = torch.Generator().manual_seed(0)
    x, first, second = (
        torch.randn(*shape, generator=generator, dtype=torch.float64).to(torch_xla.device())
        for shape in ((8, 6), (6, 12), (12, 6))
    )
    for tensor in (x, first, second):
        tensor.requires_grad_()
    whole = torch.autograd.grad(((x @ first).relu() @ second).pow(2).sum(), (x, first, second))
    mine = [regions.own_block(first.detach(), 1), regions.own_block(second.detach(), 0)]
    mine = [weight.requires_grad_() for weight in mine]
    if form == "tensor":
        start, at = x, regions.copy_to_region(x)
    elif form == "sequence":
        start = regions.own_block(x.detach(), 0).requires_grad_()
        at = regions.gather_from_sequence(start, 0)
    else:  # blocks of features, gathered before and cut after
        start, at = x, regions.gather_from_region(regions.scatter_to_region(x, 1), 1)
        at = regions.copy_to_region(at)
    hidden = (at @ mine[0]).relu()
    if form == "sequence":
        y = regions.reduce_scatter_to_sequence(hidden @ mine[1], 0)
    else:
        y = regions.reduce_from_region(hidden @ mine[1])
    parts = torch.autograd.grad(y.pow(2).sum(), (start, *mine))
    wanted = [
        regions.own_block(whole[0], 0) if form == "sequence" else whole[0],
        regions.own_block(whole[1], 1),
        regions.own_block(whole[2], 0),
    ]
    return [(a - b).abs().max().item() for a, b in zip(parts, wanted, strict=True)]


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("form", ["tensor", "sequence", "features"])
def test_regions_are_as_the_whole(form, world):
    if form == "features":
        world = 2  # six features
    for differences in worlds.run(world, layers, form):
        assert max(differences) < 1e-11
