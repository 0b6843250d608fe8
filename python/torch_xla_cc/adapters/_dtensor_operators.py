"""Operators of DTensors on XLA devices that fail below `__torch_dispatch__`, or above it.

- `where` of a number makes a tensor of it on the device of the condition, and calls `where` of
  tensors. A DTensor and an XLA tensor are refused (`_refuse_mixed` in dtensor.py), and formulas of
  gradients call it: of maximum and where itself. That of clamp makes the tensor first.
- Of an empty list of dimensions torch reduces all, and torch_xla 2.9.0 none: `x.amax()` is x there.
- `where` and `clamp` take a number of the CPU beside tensors of a device, and torch_xla's do not.
- Of devices that torch does not know `torch.norm` calls an older operator, which has no strategy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate

from torch_xla_cc._runtime.private import torch_c

_aten = torch.ops.aten
_WHERE = {
    "where.ScalarSelf": _aten.where.ScalarSelf,
    "where.ScalarOther": _aten.where.ScalarOther,
    "where.Scalar": _aten.where.Scalar,
}

# Their tensors may be numbers on the CPU.
_TAKE_NUMBERS = {
    _aten.clamp.Tensor,
    _aten.clamp_.Tensor,
    _aten.clamp_min.Tensor,
    _aten.clamp_min_.Tensor,
    _aten.clamp_max.Tensor,
    _aten.clamp_max_.Tensor,
}

_NORMS = {
    _aten.norm.Scalar,
    _aten.norm.ScalarOpt_dim,
    _aten.norm.ScalarOpt_dim_dtype,
    _aten.norm.ScalarOpt_dtype,
}

# Those that take a list of dimensions, which may be empty, and where among their arguments. (The
# gradient of amax sums over it; by gloo the sum of a DTensor over it is one of each shard.)
_DIMS = {
    _aten.amax.default: 1,
    _aten.amin.default: 1,
    _aten.sum.dim_IntList: 1,
    _aten.nansum.default: 1,
    _aten.mean.dim: 1,
    _aten.var.correction: 1,
    _aten.linalg_vector_norm.default: 2,
}
_NONE_IS_ALL = {_aten.amax.default, _aten.amin.default}  # where no list is given, it is empty


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


def _where_of_tensors(
    keys: Any,  # noqa: ANN401 (torch's set of keys)
    *args: torch.Tensor,
) -> torch.Tensor:
    """Numbers of the device become DTensors here, above functionalization, which unwraps them."""
    like = next((one for one in args if isinstance(one, DTensor)), None)
    if like is not None:
        made = [_of_mesh(one, like, one.dtype, "xla") for one in args]
        if any(one is not given for one, given in zip(made, args, strict=True)):
            return torch.where(made[0], made[1], made[2])
    # torch's kernel, which is that of all devices: it is this key's in all but the name.
    key = torch_c.DispatchKey
    below = keys.remove(key.AutogradXLA).add(key.AutogradOther)
    found: torch.Tensor = _aten.where.self.redispatch(below, *args)
    return found


@contextlib.contextmanager
def kernels() -> Iterator[None]:
    """`where`, for all XLA tensors, as long as it is open."""
    library = torch.library.Library("aten", "IMPL")
    try:
        for name, theirs in _WHERE.items():
            library.impl(name, _kernel(theirs), "AutogradXLA")
        library.impl("where.self", _where_of_tensors, "AutogradXLA", with_keyset=True)
        yield
    finally:
        library._destroy()


def prepared(func: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:  # noqa: ANN401
    """An operator of DTensors and its arguments, as torch_xla can take them."""
    first = next((one for one in args if isinstance(one, DTensor)), None)
    if first is None or first.device_mesh.device_type != "xla":
        return func, args
    if func is _aten.where.self:
        condition, x, y = args
        dtype = torch.result_type(x, y)
        condition = _of_mesh(condition, first, torch.bool)
        return func, (condition, *(_of_mesh(z, first, dtype) for z in (x, y)))
    if func in _TAKE_NUMBERS:
        return func, tuple(
            None if one is None else _of_mesh(one, first, torch.result_type(first, one))
            for one in args
        )
    if func in _NORMS:
        x, order, *others = args if len(args) > 1 else (*args, 2)  # torch leaves defaults out
        func, args = _aten.linalg_vector_norm.default, (x, 2 if order is None else order, *others)
    return func, _with_dims(func, args)


def _of_mesh(
    one: torch.Tensor, like: DTensor, dtype: torch.dtype, kind: str = "cpu"
) -> torch.Tensor:
    """A number on that kind of device as a DTensor; `where` of XLA tensors takes none."""
    if isinstance(one, DTensor) or one.numel() != 1 or one.device.type != kind:
        return one
    mesh, whole = like.device_mesh, one.to(like.device, dtype)
    return DTensor.from_local(whole, mesh, [Replicate()] * mesh.ndim, run_check=False)


def _with_dims(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:  # noqa: ANN401
    """The arguments, with all dimensions where none is named."""
    at = _DIMS.get(func)
    if at is None or not isinstance(args[0], DTensor):
        return args
    given = args[at] if len(args) > at else [] if func in _NONE_IS_ALL else None
    if given is None or len(given) > 0:
        return args
    return (*args[:at], list(range(args[0].ndim)), *args[at + 1 :])
