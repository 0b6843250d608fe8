"""Where views lie in their buffers: XLA tensors have no memory that could be asked."""

from __future__ import annotations

from typing import Any

import torch

from torch_xla_cc._runtime.private import functionalization, is_functional_tensor


def _as_view(step: Any) -> Any:  # noqa: ANN401 (a class for each op, made by PyTorch)
    """The step that made a view, in the form that makes no copy."""
    state = step.as_tuple()
    mode = next(
        i for i, x in enumerate(state) if isinstance(x, functionalization.InverseReturnMode)
    )
    return type(step)((*state[: mode - 1], True, *state[mode:]))


def _replayed(x: torch.Tensor) -> torch.Tensor:
    """A view as it lies in its buffer, on a tensor that has strides but no memory."""
    assert x._base is not None
    buffer = torch.empty(x._base.shape, dtype=x._base.dtype, device="meta")
    # Of what detach(), .data or Parameter() gave of a view, autograd's base is a view itself.
    before = len(functionalization.get_view_meta_sequence(x._base))
    steps = [_as_view(step) for step in functionalization.get_view_meta_sequence(x)[before:]]
    view: torch.Tensor = functionalization.apply_view_meta_sequence(buffer, steps)
    return view


def place(x: torch.Tensor) -> int | None:
    """The element of its buffer at which a view begins; None if it is not in one piece there."""
    view = _replayed(x)
    assert x._base is not None
    if view.shape != x.shape or view.dtype != x._base.dtype or not view.is_contiguous():
        return None
    return int(view.storage_offset())


# Of all views, those that may have an element twice.
_REPEATING = ("expand", "as_strided", "unfold")


def repeats(x: torch.Tensor) -> bool:
    """Whether two elements of a tensor are one of its buffer: what is written to them is lost."""
    if not x._is_view() or not is_functional_tensor(x):
        return False
    steps = functionalization.get_view_meta_sequence(x)
    if not any(type(step).__name__.startswith(_REPEATING) for step in steps):
        return False
    view = _replayed(x)
    if view.shape != x.shape:
        return False
    sides = [(step, n) for step, n in zip(view.stride(), view.shape, strict=True) if n > 1]
    if any(step == 0 for step, _ in sides):
        return view.numel() > 0
    reach = 0  # of the sides that step less
    for step, n in sorted(sides):
        if step <= reach:
            return _finds_one_twice(sides)
        reach += step * (n - 1)
    return False


def _finds_one_twice(sides: list[tuple[int, int]]) -> bool:
    places = torch.zeros(1, dtype=torch.int64, device="cpu")
    for step, n in sides:
        places = (places[:, None] + torch.arange(n, device="cpu") * step).reshape(-1)
    return bool(places.unique().numel() < places.numel())
