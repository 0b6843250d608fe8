"""Operators of DTensors on XLA devices that fail below `__torch_dispatch__`, or above it.

- `where` of a number makes a tensor of it on the device of the condition, and calls `where` of
  tensors. A DTensor and an XLA tensor are refused (`_refuse_mixed` in dtensor.py), and formulas of
  gradients call it: of clamp, relu6, maximum and where itself.
- Of an empty list of dimensions torch reduces all, and torch_xla 2.9.0 none: `x.amax()` is x there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate

_aten = torch.ops.aten
_WHERE = {
    "where.ScalarSelf": _aten.where.ScalarSelf,
    "where.ScalarOther": _aten.where.ScalarOther,
    "where.Scalar": _aten.where.Scalar,
}

# Those whose second argument is a list of dimensions, which is empty where none is named. (The
# gradient of amax sums over it; by gloo the sum of a DTensor over it is one of each shard.)
_REDUCTIONS = {_aten.amax.default, _aten.amin.default, _aten.sum.dim_IntList}


def _where(
    condition: torch.Tensor, x: torch.Tensor | float, y: torch.Tensor | float
) -> torch.Tensor:
    """Of a DTensor, where the numbers are DTensors too."""
    mesh = next(one.device_mesh for one in (condition, x, y) if isinstance(one, DTensor))
    dtype = torch.result_type(x, y)

    def of_dtype(one: torch.Tensor | float) -> torch.Tensor:
        if isinstance(one, torch.Tensor):
            return one.to(dtype)
        scalar = torch.scalar_tensor(one, dtype=dtype, device=condition.device)
        return DTensor.from_local(scalar, mesh, [Replicate()] * mesh.ndim, run_check=False)

    return torch.where(condition, of_dtype(x), of_dtype(y))


def _kernel(theirs: Any) -> Any:  # noqa: ANN401 (an operator, a function)
    def where(*args: Any) -> torch.Tensor:  # noqa: ANN401
        if any(isinstance(one, DTensor) for one in args):
            return _where(*args)
        made: torch.Tensor = theirs.decompose(*args)
        return made

    return where


@contextlib.contextmanager
def kernels() -> Iterator[None]:
    """`where` of numbers, for all XLA tensors, as long as it is open."""
    library = torch.library.Library("aten", "IMPL")
    try:
        for name, theirs in _WHERE.items():
            library.impl(name, _kernel(theirs), "AutogradXLA")
        yield
    finally:
        library._destroy()


def with_dims(func: object, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments, with all dimensions where none is named."""
    if func not in _REDUCTIONS or not isinstance(args[0], DTensor):
        return args
    x, *others = args
    if others[:1] not in ([], [[]]) or x.device_mesh.device_type != "xla":
        return args
    return (x, list(range(x.ndim)), *others[1:])
