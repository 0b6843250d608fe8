"""What writes into a tensor is checked in C++, and refuses what torch refuses in Python."""

import contextlib
import random
import re
import sys
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import torch_xla_cc  # noqa: F401 (it registers them)

_DEF = Path(__file__).parents[2] / "torch_xla_cc/graph/meta_kernels.def"
_LINE = re.compile(r"^(?:ONE\((\w+)\)|OF\((\w+), (\w+)\))$", re.MULTILINE)
OPS = [(op or of, overload or "default") for op, of, overload in _LINE.findall(_DEF.read_text())]
DTYPES = (torch.float32, torch.bfloat16, torch.int32, torch.bool, torch.complex64)
SHAPES = ((), (0,), (1,), (3,), (2, 3), (2, 1), (3, 2, 3), (0, 3), (3, 3))
WORDS = ("sum", "prod", "mean", "amax", "none", "tanh", "add", "multiply", "trunc", "floor")
EXAMPLES = 300
# As functionalization excludes what it has done while it checks a write.
OF_WRITE = torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize)


def _function(op):
    return getattr(getattr(torch.ops.aten, op[0]), op[1])


def _tensor(rng, name):
    """Half of them of one shape, others broadcast to it, or do not."""
    shape = rng.choice(SHAPES) if rng.random() < 0.5 else (2, 3)
    is_index = name == "index" and rng.random() < 0.8
    dtype = torch.int64 if is_index else rng.choice(DTYPES)
    x = torch.empty(shape, dtype=dtype, device="meta")
    match rng.randrange(10):
        case 0:
            return x.mT if x.dim() > 1 else x
        case 1:
            return x.expand(2, *shape)
        case _:
            return x


def _arguments(rng, op):
    """Of the types that it takes, of which many do not fit together."""
    of_type = {
        "int": lambda: rng.randint(-2, 2),
        "number": lambda: rng.choice((1, 2, 0.5, True, 1j)),
        "float": rng.random,
        "bool": lambda: rng.random() < 0.5,
        "str": lambda: rng.choice(WORDS),
        "dtype": lambda: rng.choice(DTYPES),
    }
    args, named = [], {}
    for one in _function(op)._schema.arguments:
        kind = str(one.type).removeprefix("Optional[").removesuffix("]")
        kind = "dtype" if one.name == "dtype" else kind  # which the schema calls a number
        if one.has_default_value() and rng.random() < 0.5:
            continue
        value = _tensor(rng, one.name) if kind == "Tensor" else of_type[kind]()
        if one.kwarg_only or one.has_default_value():
            named[one.name] = value
        else:
            args.append(value)
    return args, named


def _called(op, args, named):
    """What its arguments are after it, of which torch's in Python resize some; or what it says."""
    try:
        _function(op)(*args, **named)
    except Exception as error:  # AssertionError as well, of a dimension
        return str(error)
    return [(x.shape, x.dtype, x.stride()) for x in args if isinstance(x, torch.Tensor)]


@pytest.mark.parametrize("op", OPS, ids=".".join)
def test_it_refuses_what_torch_refuses_in_python(op):
    rng = random.Random(".".join(op))
    taken = 0
    for _ in range(EXAMPLES):
        state = rng.getstate()
        with torch._C._ExcludeDispatchKeyGuard(OF_WRITE):
            ours = _called(op, *_arguments(rng, op))
        rng.setstate(state)
        args, named = _arguments(rng, op)
        assert ours == _called(op, args, named), (args, named)
        taken += not isinstance(ours, str)
    assert taken or op[0] in ("addmm_", "addmv_", "baddbmm_")  # of three tensors that fit


@pytest.mark.parametrize(
    ("device", "of_write", "in_python"),
    [("meta", False, True), ("meta", True, False), ("xla", False, False)],
)
def test_only_a_tensor_without_data_of_the_script_is_checked_in_python(device, of_write, in_python):
    x = torch.empty(3, device=device)
    calls = []

    def trace(frame, event, arg):
        calls.append(frame.f_code.co_filename)

    guard = torch._C._ExcludeDispatchKeyGuard(OF_WRITE) if of_write else contextlib.nullcontext()
    with guard:
        sys.setprofile(trace)
        try:
            x.addcmul_(x, x)
        finally:
            sys.setprofile(None)
    assert any("_meta_registrations" in name for name in calls) is in_python


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
    with torch._C._ExcludeDispatchKeyGuard(OF_WRITE):
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
    "write",
    [
        lambda x: x.add_(x.new_ones(2, 3)),
        lambda x: x.addcdiv_(x, x.new_ones(4)),
        lambda x: x.clamp_(),
        lambda x: x.scatter_(1, x.long(), x),
        lambda x: x.long().normal_(),
        lambda x: torch.nn.functional.elu_(x.int()),
        lambda x: x.long().div_(2, rounding_mode="none"),
    ],
)
def test_what_does_not_fit_is_refused_on_xla(write):
    x = torch.ones(3, device="xla")
    with pytest.raises((RuntimeError, ValueError, AssertionError)):  # of torch in Python
        write(x)
    assert x.tolist() == [1.0] * 3


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.index_add_(0, torch.empty(0, dtype=torch.long, device=x.device), x[:0]),
        lambda x: x.expand(2, 3).add_(1),  # which the CPU refuses
        lambda x: x.addcmul_(x.double(), x.double()),
        lambda x: x.int().mul_(x),
    ],
)
def test_what_torch_takes_on_xla_it_takes(write):
    x = torch.ones(3, device="xla")
    assert write(x).tolist()
