"""A rank's own part of a tensor, in a program that is the same on every rank.

What a client writes as `chunks[rank]` has the rank as a constant: each rank traces, and compiles, a
program of its own, which a TPU pod does not run. Here the place comes from a table, by the rank.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, cast

import torch

from torch_xla_cc import _C
from torch_xla_cc._runtime import stand_ins
from torch_xla_cc._runtime.private import XLAC, runtime


class _Slice(NamedTuple):
    whole: tuple[int, ...]
    dim: int
    size: int
    starts: tuple[int, ...]  # by device


@functools.lru_cache(maxsize=1024)
def _computation(
    target: object,  # what it is lowered for, and whether ranks are partitions of it
    dtype: torch.dtype,
    one: _Slice,
    gradient: bool,
) -> tuple[object, bytes]:
    """Of torch_xla, and the module that it is of."""
    del target
    like = torch.empty((), dtype=dtype)
    module = _C.rank_slice_module(
        like, list(one.whole), one.dim, one.size, list(one.starts), gradient
    )
    return XLAC._xla_op_computation_from_module_proto("xla_cc.rank_slice", module), module


def _call(x: torch.Tensor, one: _Slice, *, gradient: bool) -> torch.Tensor:
    target = _C.current_target(), runtime.is_spmd()
    computation = stand_ins.of(*_computation(target, x.dtype, one, gradient))
    (result,) = XLAC._xla_user_computation("xla_cc::rank_slice", [x], computation)
    return cast("torch.Tensor", result).to(x.dtype)  # of u16, u32 and u64 torch_xla loses the sign


class _OfRank(torch.autograd.Function):
    """The slice, or the way back, each of which is the gradient of the other."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, one: _Slice, back: bool) -> torch.Tensor:  # noqa: ANN401
        ctx.one, ctx.back = one, back
        return _call(x, one, gradient=back)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:  # noqa: ANN401
        return _OfRank.apply(gradient, ctx.one, not ctx.back), None, None  # type: ignore[no-untyped-call]


def rank_slice(x: torch.Tensor, dim: int, size: int, starts: list[int]) -> torch.Tensor:
    """x[start : start + size] along `dim`, a new tensor, where `starts` are by device."""
    dim = dim + x.dim() if dim < 0 else dim
    one = _Slice(tuple(x.shape), dim, size, tuple(starts))
    return cast("torch.Tensor", _OfRank.apply(x, one, False))  # type: ignore[no-untyped-call]


def place(places: list[int], device: torch.device) -> torch.Tensor:
    """This rank's of the places, which are by device: s64[] on `device`."""
    numbers = torch.arange(max(places) + 1, device=device)
    return rank_slice(numbers, 0, 1, places).reshape(())
