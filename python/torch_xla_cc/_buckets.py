"""Cutting a list of tensors into buckets, each for one coalesced collective."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

_MIB = 1 << 20


def buckets(tensors: Sequence[torch.Tensor], cap_mb: float) -> Iterator[slice]:
    """Runs of tensors of at most `cap_mb` MiB together; a larger tensor is a run of its own."""
    if isinstance(cap_mb, bool) or not isinstance(cap_mb, (int, float)) or not cap_mb >= 0:
        raise ValueError(
            f"bucket_cap_mb = {cap_mb!r}, but it must be a number of MiB of at least 0"
        )
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
