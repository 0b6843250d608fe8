"""DTensor's own part of something whole, and what a shard of a vocabulary does not have.

There DTensor writes the rank's place as a constant, and reads masks to write by them: see
torch_xla_cc.distributed.own_part, and _masks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

from torch_xla_cc._runtime.private import Shard
from torch_xla_cc.adapters import _masks
from torch_xla_cc.distributed import own_part


def replicate_to_shard(
    theirs: Callable[..., torch.Tensor],
    placement: Shard,
    x: torch.Tensor,
    mesh: DeviceMesh,
    dim: int,
    index: int,
) -> torch.Tensor:
    """Shard._replicate_to_shard."""
    own = None
    if type(placement) is Shard and index == mesh.get_local_rank(dim):  # a subclass has others
        own = own_part.chunk(x, placement.dim, mesh.get_group(dim))
    return theirs(placement, x, mesh, dim, index) if own is None else own


def shard_tensor(
    theirs: Callable[..., torch.Tensor],
    placement: Shard,
    x: torch.Tensor,
    mesh: DeviceMesh,
    mesh_dim: int,
    src_data_rank: int | None = 0,
) -> torch.Tensor:
    """Shard._shard_tensor, which takes the rank's own chunk where nobody is to send it."""
    own = None
    if type(placement) is Shard and src_data_rank is None and mesh.get_coordinate() is not None:
        own = own_part.chunk(x, placement.dim, mesh.get_group(mesh_dim))
    return theirs(placement, x, mesh, mesh_dim, src_data_rank) if own is None else own


def partition_value(
    theirs: Callable[..., torch.Tensor],
    placement: Any,  # noqa: ANN401 (a _MaskPartial)
    x: torch.Tensor,
    mesh: DeviceMesh,
    dim: int,
) -> torch.Tensor:
    """_MaskPartial._partition_value: indices into this rank's shard, and which are in others'."""
    if x.device.type != "xla":
        return theirs(placement, x, mesh, dim)
    whole, count = placement.offset_shape[placement.offset_dim], mesh.size(dim)
    size, offset = Shard._local_shard_size_and_offset(whole, count, mesh.get_local_rank(dim))
    rank = own_part.rank(mesh.get_group(dim), x) if whole % count == 0 else None
    # An index may be of a type that has no room for less than nothing.
    within = x.long() - (offset if rank is None else rank * size)
    mask = (within < 0) | (within >= size)
    placement.mask_buffer.materialize_mask(mask)
    masked: torch.Tensor = within.masked_fill(mask, 0).to(x.dtype)
    return masked


def apply_mask(
    theirs: Callable[..., None],
    buffer: Any,  # noqa: ANN401 (a MaskBuffer)
    x: torch.Tensor,
) -> None:
    """MaskBuffer.apply_mask."""
    if x.device.type != "xla" or buffer.refcount == 0 or buffer.data is None:
        theirs(buffer, x)
        return
    _masks.fill(x, buffer.data, 0.0)
