"""What a rank has of a group's parts, from the graph: clients write the rank as a constant there,
and each rank then traces, and compiles, a program of its own, which a TPU pod does not run.

None where programs are each rank's own anyway, as on CPU processes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from torch_xla_cc import _C
from torch_xla_cc._runtime import rank_slice
from torch_xla_cc.distributed._groups import _ours


def _places(group: dist.ProcessGroup) -> list[int] | None:
    """By device, its place in the group that it is in."""
    backend = _ours(group) if group.size() > 1 else None
    places: list[int] | None = None if backend is None else _C.places_in_groups(backend)
    return places


def _is_real(x: torch.Tensor) -> bool:
    """Whether it is an XLA tensor, and no stand-in for one, such as those of torch.compile."""
    return x.device.type == "xla" and type(x) in (torch.Tensor, torch.nn.Parameter)


def chunk(x: torch.Tensor, dim: int, group: dist.ProcessGroup) -> torch.Tensor | None:
    """x.chunk(group.size(), dim)[group.rank()], as a new tensor.

    None as well where chunks are of several sizes: then ranks have programs of their own.
    """
    size = x.shape[dim]
    if not _is_real(x) or x.numel() == 0 or size % group.size() != 0:
        return None
    places = _places(group)
    if places is None:
        return None
    dim = dim % x.dim()
    parts = x.unflatten(dim, (group.size(), size // group.size()))
    return rank_slice.rank_slice(parts, dim, 1, places).squeeze(dim)


def padded_chunk(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor | None:
    """chunk() of a flat tensor, with zeros behind it where that has chunks of one size."""
    lacking = -x.numel() % group.size()
    return chunk(torch.nn.functional.pad(x, (0, lacking)) if lacking else x, 0, group)


def window(
    x: torch.Tensor, size: int, start: Callable[[int], int], group: dist.ProcessGroup
) -> torch.Tensor | None:
    """x[start : start + size] of a flat tensor, where `start` is that of a rank of the group."""
    places = _places(group) if _is_real(x) and x.numel() > 0 else None
    return None if places is None else rank_slice.rank_slice(x, 0, size, [*map(start, places)])


def with_chunk(x: torch.Tensor, own: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor | None:
    """x, of one dimension, with `own` for its chunk of this rank, as a new tensor. Undoes chunk."""
    number = rank(group, x)
    if number is None or x.shape[0] % group.size() != 0:
        return None
    chunks = x.unflatten(0, (group.size(), -1))
    is_own = torch.arange(group.size(), device=x.device) == number
    return torch.where(is_own[:, None], own, chunks).flatten()


def is_in_programs(group: dist.ProcessGroup, *like: torch.Tensor) -> bool:
    """Whether calls of the group with such tensors are in a program that all ranks have."""
    return all(map(_is_real, like)) and _places(group) is not None


def rank(group: dist.ProcessGroup, like: torch.Tensor) -> torch.Tensor | None:
    """group.rank() as s64[] on the device of a tensor."""
    places = _places(group) if _is_real(like) else None
    return None if places is None else rank_slice.place(places, like.device)
