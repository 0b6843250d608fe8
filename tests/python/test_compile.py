"""torch.ops.xla_cc.*: shapes without data, torch.compile, and no gradient lost in silence."""

import pytest
import torch
import torch_xla
import worlds
from torch._subclasses.fake_tensor import FakeTensorMode

from torch_xla_cc import Channel, lowering_for
from torch_xla_cc import xla_model as xm

OPS = torch.ops.xla_cc
V5E = "tpu:v5e:2x4"  # eight ranks
HALVES = [[0, 1, 2, 3], [4, 5, 6, 7]]
RING = [[rank, (rank + 1) % 8] for rank in range(8)]
SIZES = [0, 1, 2, 4, 5, 0, 0, 0]

# (op, fields, shapes of the operands, shapes of the results)
SHAPES = [
    ("all_gather", (0, []), [(3, 5)], [(24, 5)]),
    ("all_gather", (-1, HALVES), [(3, 5), (2, 7)], [(3, 20), (2, 28)]),
    ("all_gather", (0, []), [()], [(8,)]),
    ("all_gather", (1, []), [(0, 5)], [(0, 40)]),
    ("all_reduce", ("sum", 0.5, 1.0, []), [(3, 5), ()], [(3, 5), ()]),
    ("reduce_scatter", ("average", 1.0, 1.0, 0, None, []), [(16, 3)], [(2, 3)]),
    ("reduce_scatter", ("sum", 1.0, 1.0, -1, 4, HALVES), [(16, 4), (3, 8)], [(16, 1), (3, 2)]),
    ("collective_permute", (RING,), [(3, 5)], [(3, 5)]),
    ("collective_permute", ([],), [()], [()]),
    ("all_to_all", (0, 1, None, []), [(16, 3)], [(2, 24)]),
    ("all_to_all", (1, 1, 4, HALVES), [(3, 8)], [(3, 8)]),
    ("collective_broadcast", (5, []), [(3, 5), (2,)], [(3, 5), (2,)]),
    ("send", (7, RING), [(3, 5)], [(3, 5)]),
    ("recv", (7, RING), [(3, 5)], [(3, 5)]),
    ("uneven_all_gather", (SIZES, []), [(5, 2)], [(12, 2)]),
    ("uneven_all_gather", (SIZES, HALVES), [(5,), (5, 0)], [(7,), (7, 0)]),
    ("uneven_reduce_scatter", ("sum", 1.0, 1.0, SIZES, HALVES), [(7, 2)], [(5, 2)]),
    ("uneven_all_to_all", ([SIZES] + [[0] * 8] * 7, []), [(12, 2)], [(5, 2)]),
]


@pytest.mark.parametrize("device", ["xla", "meta"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("op", "fields", "operands", "results"), SHAPES)
def test_shapes_without_data(op, fields, operands, results, dtype, device):
    with lowering_for(V5E), FakeTensorMode():
        tensors = [torch.empty(shape, dtype=dtype, device=device) for shape in operands]
        out = getattr(OPS, op)(tensors, *fields)
    assert [tuple(tensor.shape) for tensor in out] == results
    assert all(tensor.dtype == dtype and tensor.device.type == device for tensor in out)


def test_every_op_is_in_the_table():
    names = {"all_gather", "all_reduce", "reduce_scatter", "collective_permute", "all_to_all"}
    names |= {"collective_broadcast", "send", "recv"}
    names |= {"uneven_all_gather", "uneven_reduce_scatter", "uneven_all_to_all"}
    assert {op for op, *_ in SHAPES} == names


def test_xla_model_gives_fake_tensors_for_fake_tensors():
    with lowering_for(V5E), FakeTensorMode():
        out = xm.all_gather(torch.empty(3, 5, device="xla"), dim=1)
    assert tuple(out.shape) == (3, 40)


def test_refusals_without_data():
    with lowering_for(V5E), FakeTensorMode():
        tensor = torch.empty(3, 5, device="xla")
        with pytest.raises(ValueError, match="dim = 2"):
            OPS.all_gather([tensor], 2, [])
        with pytest.raises(ValueError, match="Pad it to 8"):
            OPS.reduce_scatter([tensor], "sum", 1.0, 1.0, 0, None, [])


# One device: what each form becomes is known without a second rank.
def gather_into(x):
    output = torch.empty(4, device=x.device)
    xm.all_gather(x * 2, output=output)
    return output


def reduce_list(x):
    values = [x * 2, x * 3]
    xm.all_reduce(xm.REDUCE_SUM, values, scale=0.5)
    return values[0] + values[1]


def broadcast(x):
    values = [x * 2]
    xm.collective_broadcast(values)
    return values[0]


def send_and_receive(x):
    channel = Channel([(0, 0)])
    xm.send(x * 2, channel)
    return xm.recv((4,), channel)


# name: (function of x, the ops that it calls, the factor that it multiplies x by)
FORMS = {
    "all_gather": (lambda x: xm.all_gather(x * 2), ["all_gather"], 2),
    "all_gather of a list": (lambda x: xm.all_gather([x, x * 2])[1], ["all_gather"], 2),
    "all_gather in groups": (lambda x: xm.all_gather(x * 2, groups=[[0]]), ["all_gather"], 2),
    "all_gather into": (gather_into, ["all_gather"], 2),
    "all_gather_bucketized": (
        lambda x: xm.all_gather_bucketized([x, x * 2], bucket_cap_mb=0)[1],
        ["all_gather", "all_gather"],
        2,
    ),
    "all_reduce": (lambda x: xm.all_reduce(xm.REDUCE_SUM, x * 2), ["all_reduce"], 2),
    "all_reduce in place": (reduce_list, ["all_reduce"], 2.5),
    "reduce_scatter": (
        lambda x: xm.reduce_scatter(xm.REDUCE_AVERAGE, x * 2, 0.5),
        ["reduce_scatter"],
        1,
    ),
    "reduce_scatter_bucketized": (
        lambda x: xm.reduce_scatter_bucketized(xm.REDUCE_SUM, [x, x * 2], 1.0, 0, 1)[1],
        ["reduce_scatter"],
        2,
    ),
    "all_to_all": (lambda x: xm.all_to_all(x * 2, 0, 0, 1), ["all_to_all"], 2),
    "collective_permute": (
        lambda x: xm.collective_permute(x * 2, [(0, 0)]),
        ["collective_permute"],
        2,
    ),
    "collective_broadcast": (broadcast, ["collective_broadcast"], 2),
    "send and recv": (send_and_receive, ["send", "recv"], 2),
    "uneven_all_gather": (lambda x: xm.uneven_all_gather(x * 2, [4]), ["uneven_all_gather"], 2),
    "uneven_reduce_scatter": (
        lambda x: xm.uneven_reduce_scatter("sum", x * 2, [4]),
        ["uneven_reduce_scatter"],
        2,
    ),
    "uneven_all_to_all": (
        lambda x: xm.uneven_all_to_all(x * 2, [[4]], [[0]], padded=True),
        ["uneven_all_to_all"],
        2,
    ),
}


def compile_form(_, name, backend):
    """The result of the compiled form, and the collectives that dynamo put in its one graph."""
    traced = []

    def inspect(graph, inputs):
        traced.extend(str(n.target) for n in graph.graph.nodes if "xla_cc" in str(n.target))
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    torch._dynamo.reset()
    compiled = torch.compile(FORMS[name][0], backend=inspect, fullgraph=True)
    x = torch.arange(4.0, device=torch_xla.device())
    results = [compiled(x).tolist(), compiled(x + 1).tolist()]
    return results, [target.removeprefix("xla_cc.") for target in traced]


@pytest.mark.parametrize("backend", ["aot_eager", "openxla"])
@pytest.mark.parametrize("name", FORMS)
def test_torch_compile_makes_one_graph(name, backend):
    [(results, traced)] = worlds.run(1, compile_form, name, backend)
    _, ops, factor = FORMS[name]
    assert traced == ops
    assert results == [[factor * i for i in range(4)], [factor * (i + 1) for i in range(4)]]


def compile_with_free_sizes(_):
    torch._dynamo.reset()
    gather = torch.compile(
        lambda x: xm.all_gather(x * 2), backend="aot_eager", fullgraph=True, dynamic=True
    )
    device = torch_xla.device()
    return [gather(torch.ones(size, device=device)).tolist() for size in (4, 6, 7)]


def test_torch_compile_with_free_sizes():
    assert worlds.run(1, compile_with_free_sizes) == [[[2.0] * 4, [2.0] * 6, [2.0] * 7]]


ONE_DEVICE = {
    "all_gather": (0, []),
    "all_reduce": ("sum", 1.0, 1.0, []),
    "reduce_scatter": ("sum", 1.0, 1.0, 0, None, []),
    "collective_permute": ([[0, 0]],),
    "all_to_all": (0, 0, None, []),
    "collective_broadcast": (0, []),
    "send": (7, [[0, 0]]),
    "recv": (7, [[0, 0]]),
    "uneven_all_gather": ([4], []),
    "uneven_reduce_scatter": ("sum", 1.0, 1.0, [4], []),
    "uneven_all_to_all": ([[4]], []),
}


def check_operator(_, name):
    tensors = [torch.ones(4, device=torch_xla.device()), torch.ones(4, 3, device="xla")]
    return torch.library.opcheck(getattr(OPS, name).default, (tensors, *ONE_DEVICE[name]))


@pytest.mark.parametrize("name", ONE_DEVICE)
def test_opcheck(name):
    [checks] = worlds.run(1, check_operator, name)
    assert len(checks) >= 4
    assert set(checks.values()) == {"SUCCESS"}


def backward(_, name):
    x = torch.ones(4, device=torch_xla.device(), requires_grad=True)
    out = getattr(OPS, name)([x], *ONE_DEVICE[name])[0]
    try:
        (out * x).sum().backward()
    except RuntimeError as error:
        return out.requires_grad, str(error)
    return out.requires_grad, f"no error, and x.grad = {x.grad}"


@pytest.mark.parametrize("name", ONE_DEVICE)
def test_backward_says_that_there_is_no_gradient(name):
    assert worlds.run(1, backward, name) == [
        (True, f"derivative for xla_cc::{name} is not implemented")
    ]


@pytest.mark.parametrize(
    "call",
    [
        lambda: xm.all_reduce("sum", []),
        lambda: xm.all_gather([], output=[]),
        lambda: xm.reduce_scatter("sum", ()),
    ],
)
def test_no_tensors(call):
    def step(x):
        return x + 1, call()

    _, found = torch.compile(step, backend="eager", fullgraph=True)(torch.ones(2))
    assert len(found) == 0
