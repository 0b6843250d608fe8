"""Cutting a list of tensors into buckets, each for one coalesced collective."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from torch_xla_cc._runtime.show import show

_MIB = 1 << 20


def _runs(tensors: Sequence[torch.Tensor], cap_mb: float) -> Iterator[slice]:
    """Runs of tensors of at most `cap_mb` MiB together; a larger tensor is a run of its own."""
    start = 0
    total = 0
    for index, tensor in enumerate(tensors):
        size = tensor.numel() * tensor.element_size()
        if index > start and total + size > cap_mb * _MIB:
            yield slice(start, index)
            start, total = index, 0
        total += size
    if start < len(tensors):
        yield slice(start, len(tensors))


def bucketized(
    op: str,
    inputs: list[torch.Tensor],
    output: list[torch.Tensor] | None,
    cap_mb: float,
    call: Callable[[list[torch.Tensor], list[torch.Tensor] | None], Any],
) -> list[torch.Tensor]:
    """`call(inputs, outputs)` on runs of the list, together at most `cap_mb` MiB each."""
    if not isinstance(inputs, (list, tuple)):
        raise TypeError(
            f"{op}: input_list is {type(inputs).__name__}, but it must be a list of tensors"
        )
    for index, item in enumerate(inputs):
        if not isinstance(item, torch.Tensor):
            raise TypeError(
                f"{op}: input_list[{index}] is {type(item).__name__}, but it must be a tensor: an "
                "operand of the collective"
            )
    if output is not None and (not isinstance(output, list) or len(output) != len(inputs)):
        raise ValueError(
            f"{op}: output must be a list of {len(inputs)} tensors, one for each input"
        )
    if isinstance(cap_mb, bool) or not isinstance(cap_mb, (int, float)) or not cap_mb >= 0:
        raise ValueError(
            f"{op}: bucket_cap_mb = {show(cap_mb)}, but it must be a number of MiB of at least 0"
        )
    results: list[torch.Tensor] = []
    for run in _runs(inputs, cap_mb):
        results.extend(call(list(inputs[run]), None if output is None else output[run]))
    return results
