"""fully_shard of torch (FSDP2) on XLA devices."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from torch_xla_cc._runtime.patches import Changes, Patches
from torch_xla_cc._runtime.private import fsdp_collectives, fsdp_param, fsdp_param_group
from torch_xla_cc.adapters import _fsdp_pieces, _storage, dtensor
from torch_xla_cc.distributed import own_part


def _chunk_cat(tensors: list[torch.Tensor], dim: int, num_chunks: int, out: torch.Tensor) -> None:
    """torch._chunk_cat, which writes to a view: on XLA what it pads would be all zeros."""
    chunks = []
    for tensor in tensors:
        size = tensor.shape[dim]
        padding = [0, 0] * (tensor.dim() - 1 - dim) + [0, -size % num_chunks]
        padded = torch.nn.functional.pad(tensor, padding)
        chunks.append(padded.reshape(*tensor.shape[:dim], num_chunks, -1))
    out.copy_(torch.cat(chunks, dim + 1))
    if dim == 0 and out._base is not None:
        _fsdp_pieces.joined(out._base, [x.numel() // num_chunks for x in chunks])


def _copy_in(
    inputs: list[torch.Tensor], output: torch.Tensor, sizes: list[int], numel: int, rank: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """all_gather_copy_in, which would have this rank's shards where they are in the output: at
    another place on each rank."""
    del sizes, numel, rank
    with torch.no_grad():
        joined = torch.cat([x.reshape(-1) for x in inputs])
    _fsdp_pieces.joined(joined, [x.numel() for x in inputs])
    return joined, output


# What torch registers for CUDA and others, but for two: made of operators that XLA has. The
# key is that of autograd, which comes before functionalization: there they could not write to their
# arguments.
_OPERATORS = {
    "all_gather_copy_in": _copy_in,
    "split_with_sizes_copy": fsdp_collectives.split_with_sizes_copy,
    "chunk_cat": _chunk_cat,
    "copy_": fsdp_param.copy_,
}

_alloc_storage = fsdp_param.alloc_storage
_free_storage = fsdp_param.free_storage
_init_parameter = fsdp_param.FSDPParam.init_unsharded_param
_free_parameter = fsdp_param.FSDPParam.free_unsharded_param


def _free(tensor: torch.Tensor) -> None:
    """free_storage."""
    (_storage.free if _storage.is_ours(tensor) else _free_storage)(tensor)


def _alloc(tensor: torch.Tensor) -> None:
    """alloc_storage."""
    (_storage.alloc if _storage.is_ours(tensor) else _alloc_storage)(tensor)


def _update(parameter: Any) -> None:  # noqa: ANN401
    """Have the parameter, a view of what is gathered, follow it now: it keeps the old one alive."""
    whole = getattr(parameter, "_unsharded_param", None)
    local = whole._local_tensor if isinstance(whole, DTensor) else whole
    if local is not None:
        _storage.follow(local)


def _init_then_update(parameter: Any) -> None:  # noqa: ANN401
    """FSDPParam.init_unsharded_param, which is called when its values are there."""
    _init_parameter(parameter)
    _update(parameter)


def _free_then_update(parameter: Any) -> None:  # noqa: ANN401
    """FSDPParam.free_unsharded_param."""
    _free_parameter(parameter)
    _update(parameter)


# Of the parameter that this thread shards: the group.
_sharding: contextvars.ContextVar[dist.ProcessGroup] = contextvars.ContextVar("sharding")


def _init_sharded(theirs: Callable[..., None], parameter: Any, *args: Any) -> None:  # noqa: ANN401
    """FSDPParam._init_sharded_param."""
    token = _sharding.set(parameter.mesh_info.shard_process_group)
    try:
        theirs(parameter, *args)
    finally:
        _sharding.reset(token)


def _chunks(
    theirs: Callable[..., list[torch.Tensor]], x: torch.Tensor, count: int, dim: int
) -> list[torch.Tensor]:
    """_chunk_with_empty, of which _init_sharded_param takes this rank's."""
    chunks = theirs(x, count, dim=dim)
    group = _sharding.get(None)
    own = None if group is None else own_part.chunk(x, dim, group)
    if group is not None and own is not None:
        chunks[group.rank()] = own
    return chunks


def _finalize_backward(theirs: Callable[..., None], group: Any) -> None:  # noqa: ANN401
    """FSDPParamGroup.finalize_backward, which has torch.accelerator's stream wait for the event of
    what was gathered in advance for a layer that had no backward pass: CUDA's, in torch's wheel."""
    gathered = group._all_gather_result
    if gathered is not None and group.device.type == "xla":
        group._all_gather_result = gathered._replace(all_gather_event=None)
    theirs(group)


def _make(changes: Changes) -> None:
    changes.enter(dtensor.patches.held())
    library = torch.library.Library("fsdp", "IMPL")
    changes.after(library._destroy)
    for name, function in _OPERATORS.items():
        library.impl(name, function, "AutogradXLA")
    changes.put(fsdp_param, "alloc_storage", _alloc)
    changes.put(fsdp_param, "free_storage", _free)
    changes.put(fsdp_param_group, "alloc_storage", _alloc)  # where a shard is the whole
    changes.put(fsdp_param.FSDPParam, "init_unsharded_param", _init_then_update)
    changes.put(fsdp_param.FSDPParam, "free_unsharded_param", _free_then_update)
    changes.wrap(fsdp_param.FSDPParam, "_init_sharded_param", _init_sharded)
    changes.wrap(fsdp_param, "_chunk_with_empty", _chunks)
    _fsdp_pieces.install(changes)
    changes.wrap(fsdp_param_group.FSDPParamGroup, "finalize_backward", _finalize_backward)


_patches = Patches("adapters.fsdp", _make)


def install() -> None:
    """Have fully_shard take XLA tensors. Includes `adapters.dtensor.install()`.

    The operators `fsdp::*` are registered for XLA. What is gathered is freed and comes back, where
    FSDP resizes its storage: that of an XLA tensor cannot be.
    """
    _patches.install()


def uninstall() -> None:
    """Undo install, and with it `adapters.dtensor.install()`, if nobody else needs that."""
    _patches.uninstall()


def installed() -> contextlib.AbstractContextManager[None]:
    """install() for a block. It ends with the last block of all threads, or with uninstall()."""
    return _patches.installed()
