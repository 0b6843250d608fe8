"""Where views lie in their buffers: XLA tensors have no memory that could be asked."""

from __future__ import annotations

from typing import Any

import torch

from torch_xla_cc._runtime.private import functionalization


def _as_view(step: Any) -> Any:  # noqa: ANN401 (a class for each op, made by PyTorch)
    """The step that made a view, in the form that makes no copy."""
    state = step.as_tuple()
    mode = next(
        i for i, x in enumerate(state) if isinstance(x, functionalization.InverseReturnMode)
    )
    return type(step)((*state[: mode - 1], True, *state[mode:]))


def place(x: torch.Tensor) -> int | None:
    """The element of its buffer at which a view begins; None if it is not in one piece there.

    What made it of the buffer is done again, on a tensor that has strides but no memory.
    """
    assert x._base is not None
    buffer = torch.empty(x._base.shape, dtype=x._base.dtype, device="meta")
    steps = [_as_view(step) for step in functionalization.get_view_meta_sequence(x)]
    view = functionalization.apply_view_meta_sequence(buffer, steps)
    if view.shape != x.shape or view.dtype != buffer.dtype or not view.is_contiguous():
        return None
    return int(view.storage_offset())
