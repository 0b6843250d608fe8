"""Random programs of DTensors: steps that each make one of the tensors so far, then backward.

A step is a name of OPERATIONS with small numbers, which it takes modulo what it needs: any recipe
is a program. Each makes, and checks, what it can: where DTensor refuses a step on the CPU, it is
left out on both kinds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import hypothesis.strategies as st
import random_layers as layers
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_tensor,
)
from torch.nn import functional as F

MESHES = {1: [(1,)], 2: [(2,), (1, 2), (2, 1)], 3: [(3,), (1, 3)], 4: [(4,), (2, 2), (2, 2)]}
SIZES = (0, 1, 2, 3, 4, 4, 5, 6, 8)
DTYPES = ("float64", "float64", "float64", "float32", "bfloat16")
PARTIAL = 9


class Leaf(NamedTuple):
    shape: tuple[int, ...]
    placements: tuple[int, int]  # 0: Replicate, 9: Partial, others: Shard of one more, modulo
    needs_grad: bool


class Step(NamedTuple):
    name: str
    x: int  # of the tensors so far, modulo
    y: int
    numbers: tuple[int, int, int]
    placements: tuple[int, int]


class Program(NamedTuple):
    mesh: tuple[int, ...]
    dtype: str
    seed: int
    leaves: list[Leaf]
    steps: list[Step]
    updates: str  # what ends it: "", or an optimizer


def placements_of(
    program: Program, codes: tuple[int, int], shape: Sequence[int]
) -> list[Placement]:
    """Of a tensor of that shape. What is cut twice, or is empty, has even parts: DTensor fails."""
    made: list[Placement] = []
    for code in codes[: len(program.mesh)]:
        shard = Shard((code - 1) % len(shape)) if 0 < code < PARTIAL and shape else Replicate()
        cut = [*made, shard] if 0 in shape or any(isinstance(p, Shard) for p in made) else []
        if any(isinstance(p, Shard) and shape[p.dim] % math.prod(program.mesh) for p in cut):
            shard = Replicate()
        made.append(Partial() if code == PARTIAL else shard)
    return made


_CODES = st.sampled_from((0, 1, 1, 2, 2, 3, PARTIAL))
_PLACEMENTS = st.tuples(_CODES, _CODES)
_SIZE = st.sampled_from(SIZES)


def programs(size: int) -> st.SearchStrategy[Program]:
    """Programs for so many ranks."""
    number = st.integers(0, 11)
    leaf = st.builds(
        Leaf,
        st.lists(_SIZE, min_size=0, max_size=3).map(tuple),
        _PLACEMENTS,
        st.sampled_from((True, True, True, False)),
    )
    step = st.builds(
        Step,
        st.sampled_from(sorted(OPERATIONS)),
        st.integers(0, 5),
        st.integers(0, 5),
        st.tuples(number, number, number),
        _PLACEMENTS,
    )
    return st.builds(
        Program,
        st.sampled_from(MESHES[size]),
        st.sampled_from(DTYPES),
        st.integers(0, 99),
        st.lists(leaf, min_size=1, max_size=3),
        st.lists(step, min_size=3, max_size=10),
        st.sampled_from(("", "", "SGD", "Adam", "AdamW")),
    )


class Machine:
    """A program on one kind of device."""

    def __init__(self, program: Program, mesh: DeviceMesh, kind: str) -> None:
        self.program, self.mesh, self.kind = program, mesh, kind
        self.dtype = getattr(torch, program.dtype)
        self.leaves: list[DTensor] = []
        self.made: list[DTensor] = []
        for leaf in program.leaves:
            self.made.append(self.leaf(leaf.shape, leaf.placements, leaf.needs_grad))

    def leaf(self, shape: Any, codes: tuple[int, int] = (0, 0), needs_grad: bool = True) -> DTensor:
        """A new tensor that is the end of gradients."""
        placements = placements_of(self.program, codes, shape)
        seed = 1000 * self.program.seed + len(self.leaves)
        whole = [Replicate() if p.is_partial() else p for p in placements]
        data = layers.numbers(seed, *shape).to(self.dtype)
        x = distribute_tensor(data.to(self.kind), self.mesh, whole)
        if whole != placements:  # each rank has a part of the sum
            x = DTensor.from_local(
                x.to_local(), self.mesh, placements, shape=x.shape, stride=x.stride()
            )
        x = x.detach().requires_grad_(needs_grad)
        self.leaves.append(x)
        return x

    def step(self, step: Step) -> Any:
        x = self.made[step.x % len(self.made)]
        if not x.dtype.is_floating_point and step.name not in _OF_ANY_TYPE:
            x = x.to(self.dtype)
        return OPERATIONS[step.name](self, x, step)

    def other(self, x: DTensor, step: Step) -> DTensor:
        """One of the same shape: made before, or a new one, perhaps to be broadcast."""
        same = [y for y in self.made if y.shape == x.shape and y.dtype == x.dtype]
        if same and step.y % 2:
            return same[step.y % len(same)]
        shape = [1 if (step.numbers[2] >> i) & 1 else n for i, n in enumerate(x.shape)]
        return self.leaf(shape[step.numbers[1] % 3 == 2 :], step.placements)


Operation = Callable[[Machine, DTensor, Step], Any]


def _dim(x: DTensor, step: Step, which: int = 0) -> int:
    if not x.ndim:
        raise layers.Refused
    return step.numbers[which] % x.ndim


def _reduce(name: str) -> Operation:
    def reduce(m: Machine, x: DTensor, s: Step) -> Any:
        if s.numbers[1] % 3 == 0 or not x.ndim:
            if name in ("amax", "amin"):  # by gloo the gradient of a DTensor is NaN
                x = x.detach()
            return getattr(torch, name)(x)
        return getattr(torch, name)(x, dim=_dim(x, s), keepdim=s.numbers[1] % 3 == 1)

    return reduce


def _of_dim(function: Callable[..., Any]) -> Operation:
    return lambda m, x, s: function(x, _dim(x, s))


def _cumsum(m: Machine, x: DTensor, s: Step) -> DTensor:
    if not x.to_local().numel():  # torch_xla's own cannot be lowered
        raise layers.Refused
    return torch.cumsum(x, _dim(x, s))


def _matmul(m: Machine, x: DTensor, s: Step) -> DTensor:
    if not x.ndim:
        raise layers.Refused
    return x @ m.leaf((x.shape[-1], SIZES[s.numbers[0] % len(SIZES)]), s.placements)


def _linear(m: Machine, x: DTensor, s: Step) -> DTensor:
    if not x.ndim:
        raise layers.Refused
    width = SIZES[s.numbers[0] % len(SIZES)]
    bias = m.leaf((width,), s.placements[::-1]) if s.numbers[1] % 2 else None
    return F.linear(x, m.leaf((width, x.shape[-1]), s.placements), bias)


def _view_written(m: Machine, x: DTensor, s: Step) -> DTensor:
    """Into a view of a copy."""
    y = x.clone()
    views = (
        lambda: y.transpose(0, -1),
        lambda: y[..., ::2],
        lambda: y.narrow(_dim(y, s), 0, 1),
        lambda: _some(y).flatten(),
        lambda: y.unsqueeze(0),
        lambda: y.select(_dim(y, s), 0),
    )
    view = views[s.numbers[1] % len(views)]()
    (view.add_(1.5), view.mul_(-2), view.fill_(3), view.zero_())[s.numbers[2] % 4]
    return y


def _in_place(m: Machine, x: DTensor, s: Step) -> DTensor:
    y, other = x.clone(), m.other(x, s)
    (y.add_, y.mul_, y.copy_, y.sub_)[s.numbers[0] % 4](other)
    return y


def _through_local(m: Machine, x: DTensor, s: Step) -> DTensor:
    local = x.to_local()
    return DTensor.from_local(
        local * 2, m.mesh, x.placements, shape=x.shape, stride=x.stride(), run_check=False
    )


def _distributed_again(m: Machine, x: DTensor, s: Step) -> DTensor:
    whole = placements_of(m.program, s.placements, x.shape)
    return distribute_tensor(x.full_tensor().detach(), m.mesh, whole)


def _layer_norm(m: Machine, x: DTensor, s: Step) -> DTensor:
    last = 1 + s.numbers[0] % 2 if x.ndim > 1 else 1
    if not x.numel():  # no gradient of the weight on one kind, zeros on the other
        raise layers.Refused
    shape = x.shape[-last:]
    weight = m.leaf(shape) if s.numbers[1] % 3 else None
    return F.layer_norm(x, shape, weight, m.leaf(shape) if s.numbers[1] % 3 == 1 else None)


def _cross_entropy(m: Machine, x: DTensor, s: Step) -> DTensor:
    if x.ndim != 2 or not x.shape[1]:
        raise layers.Refused
    target = torch.arange(x.shape[0]) % x.shape[1]
    placements = [p if p == Shard(0) else Replicate() for p in x.placements]
    reduction = ("mean", "sum", "none")[s.numbers[0] % 3]
    y = distribute_tensor(target.to(m.kind), m.mesh, placements)
    return F.cross_entropy(x, y, reduction=reduction)


def _attention(m: Machine, x: DTensor, s: Step) -> DTensor:
    if x.ndim < 3:
        raise layers.Refused
    others = [m.leaf(x.shape, s.placements) for _ in range(2)]
    return F.scaled_dot_product_attention(x, *others)  # (A mask would be no DTensor on XLA.)


def _embedding(m: Machine, x: DTensor, s: Step) -> DTensor:
    if x.ndim != 2 or not x.shape[0]:
        raise layers.Refused
    index = torch.arange(2 + s.numbers[0]) * 5 % x.shape[0]
    placements = placements_of(m.program, s.placements, index.shape)
    return F.embedding(distribute_tensor(index.to(m.kind), m.mesh, placements), x)


def _index_select(m: Machine, x: DTensor, s: Step) -> DTensor:
    dim = _dim(x, s)
    index = torch.arange(1 + s.numbers[1]) * 3 % max(1, x.shape[dim])
    whole = [Replicate()] * m.mesh.ndim
    return x.index_select(dim, distribute_tensor(index.to(m.kind), m.mesh, whole))


def _some(x: DTensor) -> DTensor:
    """Of none torch 2.9 looks for ever (view_groups) for what becomes of a flattened dimension."""
    if not x.numel():
        raise ValueError("it has no elements")
    return x


def _unflatten(x: DTensor, dim: int) -> DTensor:
    parts = [n for n in (2, 3, 1) if x.shape[dim] % n == 0]
    return x.unflatten(dim, (parts[0], x.shape[dim] // parts[0]))


def _slice(m: Machine, x: DTensor, s: Step) -> DTensor:
    dim = _dim(x, s)
    start = s.numbers[1] % (x.shape[dim] + 1)
    return x[(slice(None),) * dim + (slice(start, start + s.numbers[2]),)]


OPERATIONS: dict[str, Operation] = {
    **{
        name: functools.partial(lambda f, m, x, s: f(x), function)
        for name, function in {
            "relu": torch.relu,
            "tanh": torch.tanh,
            "gelu": F.gelu,
            "silu": F.silu,
            "square": torch.square,
            "root": lambda x: torch.sqrt(x.abs() + 1),
            "clamp": lambda x: torch.clamp(x, -0.5, 0.7),
            "clamp_": lambda x: x.clone().clamp_(min=-0.5),
            "exp": lambda x: torch.exp(-x.abs()),
            "scaled": lambda x: 2 * x - 1,
            "inverse": lambda x: 1 / (1 + x * x),
            "positive": lambda x: x > 0,
            "integers": lambda x: x.clamp(-9, 9).round().long(),
            "float32": lambda x: x.to(torch.float32),
            "clone": torch.clone,
            "detach": torch.detach,
            "zeros_like": torch.zeros_like,
            "contiguous": lambda x: x.contiguous(),
            "flatten": lambda x: _some(x).flatten(),
            "t": lambda x: x.t(),
            "mT": lambda x: x.mT,
            "tril": torch.tril,
            "whole": lambda x: x.full_tensor() * 1 and x,
        }.items()
    },
    **{name: _reduce(name) for name in ("sum", "mean", "amax", "amin", "var", "std", "prod")},
    **{name: _reduce(name) for name in ("argmax", "any", "all", "logsumexp")},
    "norm": lambda m, x, s: torch.linalg.vector_norm(x, (1, 2, 3, torch.inf)[s.numbers[0] % 4]),
    "torch.norm": lambda m, x, s: torch.norm(x, 1 + s.numbers[0] % 3),
    "clamp_by_tensors": lambda m, x, s: torch.clamp(x, m.other(x, s) - 1, m.other(x, s)),
    "softmax": _of_dim(torch.softmax),
    "log_softmax": _of_dim(torch.log_softmax),
    "cumsum": _cumsum,
    "sort": _of_dim(lambda x, dim: torch.sort(x, dim).values),
    "topk": lambda m, x, s: torch.topk(x, min(2, x.shape[_dim(x, s)]), _dim(x, s)).values,
    "squeeze": _of_dim(torch.squeeze),
    "unsqueeze": lambda m, x, s: x.unsqueeze(s.numbers[0] % (x.ndim + 1)),
    "unflatten": _of_dim(_unflatten),
    "flip": _of_dim(lambda x, dim: x.flip(dim)),
    "roll": _of_dim(lambda x, dim: x.roll(1, dim)),
    "transpose": lambda m, x, s: x.transpose(_dim(x, s), _dim(x, s, 1)),
    "expand": lambda m, x, s: x.unsqueeze(0).expand(2 + s.numbers[0] % 3, *x.shape),
    "repeat": lambda m, x, s: x.repeat(2, *[1] * (x.ndim - 1)),
    "view": lambda m, x, s: _some(x).view(-1),
    "reshape": lambda m, x, s: (
        _some(x).reshape(*x.shape[:-2], -1) if x.ndim > 1 else x.reshape(1, -1)
    ),
    "slice": _slice,
    "select": lambda m, x, s: x.select(_dim(x, s), 0),
    "chunk": lambda m, x, s: x.chunk(2 + s.numbers[1] % 2, _dim(x, s))[s.numbers[2] % 2],
    "pad": lambda m, x, s: F.pad(x, (s.numbers[0] % 3, s.numbers[1] % 3)),
    "add": lambda m, x, s: x + m.other(x, s),
    "mul": lambda m, x, s: x * m.other(x, s),
    "div": lambda m, x, s: x / (1 + m.other(x, s).square()),
    "maximum": lambda m, x, s: torch.maximum(x, m.other(x, s)),
    "where": lambda m, x, s: torch.where(x > 0, x, m.other(x, s)),
    "masked_fill": lambda m, x, s: x.masked_fill(m.other(x, s).detach() > 0, 0.25),
    "lerp": lambda m, x, s: torch.lerp(x, m.other(x, s), 0.3),
    "cat": lambda m, x, s: torch.cat([x, x * 2, x], _dim(x, s)),
    "cat_other": lambda m, x, s: torch.cat([x, m.leaf(x.shape, s.placements)], _dim(x, s)),
    "stack": lambda m, x, s: torch.stack([x, m.leaf(x.shape, s.placements)], s.numbers[0] % 2),
    "matmul": _matmul,
    "linear": _linear,
    "bmm": lambda m, x, s: torch.bmm(x, m.leaf((x.shape[0], x.shape[2], 3), s.placements)),
    "einsum": lambda m, x, s: torch.einsum("...i,...i->...", x, m.other(x, s).expand_as(x)),
    "layer_norm": _layer_norm,
    "rms_norm": lambda m, x, s: F.rms_norm(x, x.shape[-1:], m.leaf(x.shape[-1:])),
    "cross_entropy": _cross_entropy,
    "attention": _attention,
    "embedding": _embedding,
    "index_select": _index_select,
    "mse_loss": lambda m, x, s: F.mse_loss(x, m.leaf(x.shape, s.placements)),
    "in_place": _in_place,
    "view_written": _view_written,
    "redistribute": lambda m, x, s: x.redistribute(
        placements=placements_of(m.program, s.placements, x.shape)
    ),
    "replicate": lambda m, x, s: x.redistribute(placements=[Replicate()] * m.mesh.ndim),
    "through_local": _through_local,
    "distributed_again": _distributed_again,
}
OPERATIONS["redistribute_too"] = OPERATIONS["redistribute_again"] = OPERATIONS["redistribute"]
_OF_ANY_TYPE = {"redistribute", "clone", "transpose", "sum", "any", "all", "flatten", "in_place"}
