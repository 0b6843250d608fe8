"""Lists, views, outputs and in-place forms, on 4 virtual CPU devices, against oracle.py.

What a form gives is what the plain call gives for each tensor.
"""

import contextlib

import numpy as np
import pytest
import torch
import torch_xla
import worlds
from operands import exact_values
from oracle import Case, differences, issue, put, take_all, to_numpy

import torch_xla_cc
from torch_xla_cc import xla_model as xm

FIELDS = {
    "all_gather": {"dim": 0},
    "all_reduce": {"reduce_type": "sum", "scale": 2},
    "reduce_scatter": {"reduce_type": "mul", "scatter_dim": 0},
    "all_to_all": {"split_dimension": 0, "concat_dimension": 0},
    "collective_permute": {"pairs": [(0, 1), (1, 2), (2, 3), (3, 0)]},
    "collective_broadcast": {"root_ordinal": 1},
}
# (dtype, shape) of the operands of a list on 4 ranks; axis 0 divides by 4.
LISTS = {
    "one dtype": [("f32", (8, 3)), ("f32", (4,)), ("f32", (12, 1, 2))],
    "mixed dtypes": [("f32", (8, 3)), ("s8", (4, 2)), ("bf16", (8,)), ("f32", (4,)), ("c64", (4,))],
    "some empty": [("f32", (8, 0)), ("f32", (4,)), ("s32", (0,)), ("f32", (0, 3))],
    "all empty": [("f32", (0,)), ("s64", (4, 0))],
    "one": [("f16", (4,))],
    "tuple": [("s32", (4,)), ("u8", (8, 2))],
    "no dimensions": [("f32", ()), ("s16", ()), ("f32", (4,))],
}


def call_list(rank, op, inputs, form):
    tensors = [put(array) for array in inputs[rank]]
    tensors = tuple(tensors) if form == "tuple" else tensors
    fields = dict(FIELDS[op])
    if op == "collective_broadcast":
        assert xm.collective_broadcast(tensors, **fields) is None
        results = tensors
    elif op == "all_reduce":
        results = xm.all_reduce(fields.pop("reduce_type"), tensors, **fields)
        assert results is tensors  # reduced in place
    elif op == "reduce_scatter":
        results = xm.reduce_scatter(fields.pop("reduce_type"), tensors, **fields)
    else:
        results = getattr(xm, op)(tensors, **fields)
    return take_all(results)


# These cut an axis, and a scalar has none.
CALLS = [
    (op, form)
    for op in FIELDS
    for form in LISTS
    if form != "no dimensions" or op not in ("reduce_scatter", "all_to_all")
]


@pytest.mark.parametrize(("op", "form"), CALLS)
def test_list_is_each_of_its_tensors(op, form):
    rng = np.random.default_rng(0)
    inputs = [
        [exact_values(rng, dtype, shape, "mul") for dtype, shape in LISTS[form]] for _ in range(4)
    ]
    check_lists(op, inputs, worlds.run(4, call_list, op, inputs, form))


def check_lists(op, inputs, results, fields=None):
    """`inputs` and `results`: by rank, lists of arrays."""
    found = []
    for own, got in zip(zip(*inputs, strict=True), zip(*results, strict=True), strict=True):
        found += differences(Case(op, list(own), fields or FIELDS[op]), list(got))
    assert not found, "\n".join(found[:8])


def operand(rank):
    return torch.arange(64).reshape(8, 8) * (rank + 1) - 100.0


def updated(x):
    x[2:4].mul_(2)
    view = x[1:5]
    view[0].add_(7)
    x.t()[3].sub_(1)
    return view


VIEWS = {
    "transposed": lambda x: x.t(),
    "permuted": lambda x: x.reshape(4, 2, 8).permute(2, 0, 1),
    "expanded": lambda x: x[:1].expand(4, 8),
    "expanded from a scalar": lambda x: x[1, 1].expand(4, 3),
    "sliced": lambda x: x[4:, 1::3],
    "row": lambda x: x[5],
    "column": lambda x: x[:, 2],
    "diagonal": lambda x: x.diagonal(),
    "narrow and flat": lambda x: x.narrow(0, 2, 4).view(-1),
    "flipped": lambda x: x.flip(0),
    "with pending updates": updated,
    "requires grad": lambda x: x.requires_grad_(),
    "result of arithmetic with grad": lambda x: x.requires_grad_() * 2,
    "detached": lambda x: x.requires_grad_().detach(),
}


def call_on_view(rank, name):
    results, grads = [], []
    for op, fields in FIELDS.items():
        view = VIEWS[name](operand(rank).to(torch_xla.device()))
        if op == "collective_broadcast":  # in place: on a copy
            view = view.detach().clone()
        result = issue(Case(op, [], fields), view)
        grads.append(result.requires_grad)
        results.append(result)
    return take_all(results), grads


@pytest.mark.parametrize("name", VIEWS)
def test_any_view_is_taken_as_its_values(name):
    inputs = [to_numpy(VIEWS[name](operand(rank))) for rank in range(4)]
    by_rank = worlds.run(4, call_on_view, name)
    for i, (op, fields) in enumerate(FIELDS.items()):
        assert not differences(Case(op, inputs, fields), [results[i] for results, _ in by_rank])
    assert not any(any(grads) for _, grads in by_rank), "a result has a gradient"


def update_around(rank):
    """Updates before a call are in it; those after it are not in its result."""
    x = operand(rank).to(torch_xla.device())
    x.add_(1)
    before = xm.all_gather(x)
    x.zero_()
    after = xm.all_gather(x[:1])
    before_copy = before.clone()
    before.add_(5)
    return take_all([before_copy, after, before, x])


def test_updates_are_in_program_order():
    copy, after, before, x = worlds.run(4, update_around)[2]
    gathered = np.concatenate([to_numpy(operand(rank)) + 1 for rank in range(4)])
    assert np.array_equal(copy, gathered)
    assert np.array_equal(before, gathered + 5)
    assert not after.any()
    assert not x.any()


def write_into(rank, form):
    device = torch_xla.device()
    x = operand(rank).to(device)
    small = x[:, :3].contiguous()
    buffer = torch.full((40, 8), -1.0, device=device)
    parts = [buffer[:32], buffer[32:34]]
    if form == "output of all_gather":
        out = xm.all_gather(x, output=parts[0])
        assert out is parts[0]
    elif form == "outputs of a list":
        outputs = [parts[0], torch.empty(32, 3, device=device)]
        assert xm.all_gather([x, small], output=outputs) is outputs
    elif form == "output of reduce_scatter":
        assert xm.reduce_scatter("sum", x, output=parts[1], scale=0.5) is parts[1]
    elif form == "bucketized outputs":
        outputs = [parts[1], torch.empty(2, 3, device=device)]
        xm.reduce_scatter_bucketized("sum", [x, small], 0.5, output=outputs, bucket_cap_mb=0)
    elif form == "all_reduce in place":
        buffer[:8] = x
        xm.all_reduce("sum", [buffer[:4], buffer[6:8].t()])
    elif form == "collective_broadcast in place":
        buffer[:8] = x
        xm.collective_broadcast([buffer[:4], buffer[:, 7]], root_ordinal=3)
    elif form == "leaf with gradient in place":
        leaf = x.clone().requires_grad_()
        xm.all_reduce("sum", [leaf])
        assert leaf.requires_grad
        assert leaf.is_leaf
        buffer[:8] = leaf.detach()
    return take_all([buffer])[0]


def written(rank, form):
    """What write_into leaves in the buffer."""
    xs = [to_numpy(operand(rank)) for rank in range(4)]
    buffer = np.full((40, 8), -1.0, np.float32)
    if form in ("output of all_gather", "outputs of a list"):
        buffer[:32] = np.concatenate(xs)
    elif form in ("output of reduce_scatter", "bucketized outputs"):
        buffer[32:34] = np.split(sum(xs), 4)[rank] / 2
    elif form == "all_reduce in place":
        buffer[:8] = xs[rank]
        buffer[:4], buffer[6:8] = sum(xs)[:4], sum(xs)[6:8]
    elif form == "collective_broadcast in place":
        buffer[:8] = xs[rank]
        buffer[:4], buffer[:8, 7] = xs[3][:4], xs[3][:, 7]
    elif form == "leaf with gradient in place":
        buffer[:8] = sum(xs)
    return buffer


@pytest.mark.parametrize(
    "form",
    [
        "output of all_gather",
        "outputs of a list",
        "output of reduce_scatter",
        "bucketized outputs",
        "all_reduce in place",
        "collective_broadcast in place",
        "leaf with gradient in place",
    ],
)
def test_outputs_may_be_parts_of_a_buffer(form):
    for rank, buffer in enumerate(worlds.run(4, write_into, form)):
        assert np.array_equal(buffer, written(rank, form))


def bucketize(rank, op, inputs, cap_mb):
    tensors = [put(array) for array in inputs[rank]]
    groups = [[0, 2], [1, 3]]
    with torch_xla_cc.record() if rank == 0 else contextlib.nullcontext([]) as calls:
        if op == "all_gather":
            results = xm.all_gather_bucketized(tensors, 1, groups, bucket_cap_mb=cap_mb)
        else:
            results = xm.reduce_scatter_bucketized(
                "sum", tensors, 1.0, 1, None, groups, bucket_cap_mb=cap_mb
            )
        torch_xla.sync()
    return take_all(results), len([call for call in calls if call.rank == 0])


@pytest.mark.parametrize(("cap_mb", "buckets"), [(160, 1), (0.01, 3), (0, 6)])
@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
def test_bucketized_forms(op, cap_mb, buckets):
    # 4 KiB each: two of them stay under 0.01 MiB.
    inputs = [[np.float32(i + 10 * rank) + np.zeros((4, 256), np.float32) for i in range(6)]
              for rank in range(4)]  # fmt: skip
    by_rank = worlds.run(4, bucketize, op, inputs, cap_mb)
    fields = {"groups": [[0, 2], [1, 3]]}
    fields |= {"dim": 1} if op == "all_gather" else {"reduce_type": "sum", "scatter_dim": 1}
    check_lists(op, inputs, [results for results, _ in by_rank], fields)
    assert by_rank[0][1] == buckets


def outputs_of_other_shapes(rank):
    """As torch_xla takes them; they are then of that shape, at once."""
    device = torch_xla.device()
    x = torch.arange(8.0, device=device).reshape(4, 2) + rank
    made = []
    for several in (xm.reduce_scatter, xm.reduce_scatter_bucketized):
        outputs = [torch.rand(3, device=device), torch.rand(5, 2, device=device)]
        several("sum", [x, 2 * x], 1.0, 0, 2, output=outputs)
        made += outputs
    one = torch.rand(7, 7, device=device)
    assert xm.reduce_scatter("sum", x, 1.0, 0, 2, output=one) is one
    gathered = [torch.rand(1, device=device)]
    xm.all_gather([x], output=gathered)
    buckets = [torch.rand(9, device=device)]
    xm.all_gather_bucketized([x], output=buckets)
    shapes = [list(output.shape) for output in (*made, one, *gathered, *buckets)]
    one.add_(1)
    view = torch.zeros(6, device=device)[:3]
    with pytest.raises(ValueError, match="output 0 is"):  # it cannot grow
        xm.reduce_scatter("sum", x, 1.0, 0, 2, output=view)
    shared = torch.zeros(6, device=device)
    alias = shared.detach()
    with pytest.raises(ValueError, match="output 0 is"):  # the other one would keep its shape
        xm.reduce_scatter("sum", x, 1.0, 0, 2, output=shared)
    assert alias.tolist() == [0.0] * 6
    weight = torch.ones(1, 2, device=device, requires_grad=True)
    saved = torch.full((1, 2), 3.0, device=device)
    loss = (weight * saved).sum()
    xm.reduce_scatter("sum", x, 1.0, 0, 2, output=saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    large = torch.zeros(8, device=device)
    views = (torch.zeros(1, device=device), large[:1])
    for view in [one.expand(4) for one in views]:
        with pytest.raises(ValueError, match="output 0 is an expanded view"):
            xm.all_gather(torch.ones(2, device=device), output=view)
    every_other = large[::2]
    xm.all_gather(torch.ones(2, device=device), output=every_other)
    assert large.tolist() == [1.0, 0.0] * 4
    with pytest.raises(ValueError, match="output 0 is an expanded view"):
        xm.all_reduce("sum", [large[:1].expand(4)])
    return shapes, [output.tolist() for output in (*made, one, *gathered, *buckets)]


def test_outputs_may_be_of_other_shapes():
    whole = torch.arange(8.0).reshape(4, 2)
    for rank, (shapes, values) in enumerate(worlds.run(2, outputs_of_other_shapes)):
        part = (2 * whole + 1)[2 * rank : 2 * rank + 2]
        gathered = torch.cat([whole, whole + 1])
        expected = [part, 2 * part, part, 2 * part, part + 1, gathered, gathered]
        assert shapes == [list(x.shape) for x in expected]
        assert values == [x.tolist() for x in expected]
