"""What writes into a tensor is checked in C++ as on CPU, and in Python where sizes are symbols."""

import re
from pathlib import Path

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import torch_xla_cc  # noqa: F401 (it registers them)

_DEF = Path(__file__).parents[2] / "torch_xla_cc/graph/meta_kernels.def"
OPS = [
    (op or of, overload or "default")
    for op, of, overload in re.findall(
        r"^(?:ONE\((\w+)\)|OF\((\w+), (\w+)\))$", _DEF.read_text(), re.M
    )
]
DTYPES = (torch.float32, torch.bfloat16, torch.int32, torch.bool, torch.complex64)
SHAPES = ((), (1,), (3,), (2, 3), (2, 1), (3, 2, 3), (0, 3), (3, 3))
INTS = st.integers(-2, 2)
OF_TYPE = {
    "int": INTS,
    "number": st.sampled_from((1, 2, 0.5, True)),
    "float": st.floats(0.0, 1.0),
    "bool": st.booleans(),
    "dtype": st.sampled_from(DTYPES),
    "str": st.sampled_from(("sum", "prod", "none", "tanh", "add", "multiply", "trunc", "floor")),
}
NO_KERNEL = re.compile("not implemented for|not supported|[Uu]nsupported|only (works|support)")


def _function(op):
    return getattr(getattr(torch.ops.aten, op[0]), op[1])


@st.composite
def _tensor(draw, name):
    shape = draw(st.sampled_from(SHAPES))
    if name == "index":
        return torch.zeros(shape, dtype=torch.int64)
    return torch.ones(shape, dtype=draw(st.sampled_from(DTYPES)))


@st.composite
def arguments(draw, op):
    """Of the types that it takes, which mostly do not fit together."""
    args, named = [], {}
    for one in _function(op)._schema.arguments:
        kind = str(one.type).removeprefix("Optional[").removesuffix("]")
        if one.has_default_value() and draw(st.booleans()):
            continue
        if kind == "Generator":
            continue
        kind = "dtype" if one.name == "dtype" else kind  # which the schema calls a number
        value = draw(_tensor(one.name) if kind == "Tensor" else OF_TYPE[kind])
        if one.kwarg_only or one.has_default_value():
            named[one.name] = value
        else:
            args.append(value)
    return args, named


def _error(call):
    try:
        call()
    except (RuntimeError, IndexError, NotImplementedError, ValueError, TypeError) as error:
        return str(error)
    return ""


def _on_meta(args, named):
    def moved(one):
        return one.to("meta") if isinstance(one, torch.Tensor) else one

    return list(map(moved, args)), {name: moved(one) for name, one in named.items()}


@pytest.mark.parametrize("op", OPS, ids=".".join)
def test_it_refuses_what_the_op_refuses_on_the_cpu(op):
    @hypothesis.settings(max_examples=25, deadline=None, derandomize=True)
    @hypothesis.given(arguments(op))
    def check(given):
        args, named = given
        function = _function(op)
        on_meta, named_meta = _on_meta(args, named)
        before = [(x.shape, x.dtype) for x in on_meta if isinstance(x, torch.Tensor)]
        said = _error(lambda: function(*on_meta, **named_meta))
        assert before == [(x.shape, x.dtype) for x in on_meta if isinstance(x, torch.Tensor)]
        on_cpu = _error(lambda: function(*args, **named))
        if not NO_KERNEL.search(on_cpu):
            assert bool(said) == bool(on_cpu), (given, said, on_cpu)

    check()


def test_each_op_is_one_that_torch_checks_in_python_where_it_could_in_cpp():
    for name, overload in OPS:
        full = f"aten::{name}" + ("" if overload == "default" else f".{overload}")
        lines = torch._C._dispatch_dump(full).splitlines()
        ours, *others = (line for line in lines if line.startswith("Meta"))
        assert ours.startswith("Meta: ") and "_meta_registrations" not in ours
        assert any("_meta_registrations" in line for line in others), full
        assert any("RegisterMeta" in line for line in others), full


def test_sizes_may_be_symbols():
    mode = FakeTensorMode(shape_env=ShapeEnv())
    x, y = (mode.from_tensor(torch.ones(2, 3, 4)[i], static_shapes=False) for i in (0, slice(2)))
    assert isinstance(x.shape[0], torch.SymInt)
    assert x.mul_(2).addcmul_(x, x).shape == x.shape
    with pytest.raises(RuntimeError, match="broadcast"):
        x.add_(y)

    @torch.compile(dynamic=True, backend="aot_eager", fullgraph=True)
    def step(x, y):
        x.add_(y).addcdiv_(y, y)
        return x.lerp_(y, 0.5)

    for size in 3, 5:
        assert step(torch.ones(size), torch.ones(size)).tolist() == [2.0] * size


@pytest.mark.parametrize(
    ("write", "why"),
    [
        (lambda x: x.add_(x.new_ones(2, 3)), r"doesn't match the broadcast shape \[2, 3\]"),
        (lambda x: x.int().mul_(x), "can't be cast to the desired output type Int"),
        (lambda x: x.addcdiv_(x, x.new_ones(4)), "must match the size"),
        (lambda x: x.clamp_(), "At least one of"),
        (lambda x: x.scatter_(1, x.long(), x), "out of range"),
    ],
)
def test_what_does_not_fit_is_refused_on_xla(write, why):
    x = torch.ones(3, device="xla")
    with pytest.raises((RuntimeError, IndexError), match=why):
        write(x)
    assert x.tolist() == [1.0] * 3
