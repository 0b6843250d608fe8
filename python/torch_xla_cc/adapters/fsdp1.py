"""FullyShardedDataParallel of torch (FSDP1) on XLA devices."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from torch_xla_cc._runtime.patches import Changes, Patches
from torch_xla_cc._runtime.private import (
    flat_param,
    fsdp1_common,
    fsdp1_extensions,
    fsdp1_init,
    fsdp1_runtime,
    torch_c,
)
from torch_xla_cc.adapters import _fsdp1_devices, _storage, dtensor
from torch_xla_cc.distributed import own_part

_Theirs = Callable[..., Any]


def _free(theirs: _Theirs, tensor: torch.Tensor) -> None:
    """_free_storage."""
    (_storage.free if _storage.is_ours(tensor) else theirs)(tensor)


def _alloc(theirs: _Theirs, tensor: torch.Tensor, size: torch.Size) -> None:
    """_alloc_storage, of the size that it had."""
    if _storage.is_ours(tensor):
        _storage.alloc(tensor)
    else:
        theirs(tensor, size)


# What FSDP asks of storages. That of an XLA tensor does not know: its address is 0, and its size is
# what it was made with, or 0.


def _same_storage(theirs: _Theirs, a: torch.Tensor, b: torch.Tensor) -> bool:
    a, b = (x._local_tensor if isinstance(x, DTensor) else x for x in (a, b))
    if _storage.is_ours(a) or _storage.is_ours(b):
        return bool(torch_c._is_alias_of(a, b))
    return bool(theirs(a, b))


def _same_storage_size(theirs: _Theirs, tensor: torch.Tensor, size: int) -> bool:
    if _storage.is_ours(tensor):
        return size == (0 if _storage.is_free(tensor) else tensor.numel())
    return bool(theirs(tensor, size))


def _is_allocated(theirs: _Theirs, tensor: torch.Tensor) -> bool:
    return not _storage.is_free(tensor) if _storage.is_ours(tensor) else bool(theirs(tensor))


def _check_device(theirs: _Theirs, handle: Any, tensor: torch.Tensor) -> None:  # noqa: ANN401
    """_check_on_compute_device: the meta tensor in what is free is on none."""
    if not (_storage.is_ours(tensor) and _storage.is_free(tensor)):
        theirs(handle, tensor)


def _check_low_precision(theirs: _Theirs, handle: Any) -> None:  # noqa: ANN401
    """_check_low_precision_shard, the same."""
    shard = handle.flat_param._mp_shard
    if not (_storage.is_ours(shard) and _storage.is_free(shard)):
        theirs(handle)


def _follow(handle: Any) -> None:  # noqa: ANN401
    """Have the module's views of what is gathered follow it now: they keep the old one alive."""
    own = handle.flat_param
    views = [*(own._tensors or ())]
    for name, module, *_ in (*own._param_infos, *own._shared_param_infos):
        views.append(getattr(module, name, None))
    _storage.follow(*(view for view in views if isinstance(view, torch.Tensor)))


def _free_then_follow(theirs: _Theirs, handle: Any) -> None:  # noqa: ANN401
    """_free_unsharded_flat_param, and _free_low_precision_sharded_param."""
    theirs(handle)
    _follow(handle)


def _use_then_follow(theirs: _Theirs, handle: Any, gathered: torch.Tensor) -> None:  # noqa: ANN401
    """_use_unsharded_flat_param: views of the forward pass, which a block that is computed again
    uses, are to be on a device before they are asked."""
    theirs(handle, gathered)
    _follow(handle)


@torch.no_grad()
def _shard(theirs: _Theirs, handle: Any) -> None:  # noqa: ANN401
    """FlatParamHandle.shard, which resizes the storage of the whole itself."""
    own = handle.flat_param
    if not (_storage.is_ours(own) and handle.uses_sharded_strategy):
        theirs(handle)
        return
    whole = own.detach()
    padded = 0
    shard = own_part.chunk(whole.flatten(), 0, handle.process_group)
    if shard is None:
        shard, padded = handle._get_shard(own, handle.rank, handle.world_size)
    own.data = shard
    _storage.free(whole)
    _follow(handle)
    start = shard.numel() * handle.rank
    handle._init_shard_metadata(padded, start, start + shard.numel() - 1)
    if handle._use_orig_params:
        handle._use_sharded_views()


def _reshard_all(theirs: _Theirs, state: Any) -> None:  # noqa: ANN401
    """_catch_all_reshard, which tells by addresses whether it is sharded already."""
    own = state._handle and state._handle.flat_param
    is_ours = own is not None and _storage.is_ours(own)
    if is_ours and not torch_c._is_alias_of(own, own._local_shard):
        free = fsdp1_runtime._should_free_in_backward(state, state._handle)
        fsdp1_runtime._reshard(state, state._handle, free)
    else:
        theirs(state)


def _make(changes: Changes) -> None:
    changes.enter(dtensor.patches.held())
    changes.wrap(fsdp1_common._FSDPDeviceHandle, "from_device", _fsdp1_devices.handle_of)
    changes.wrap(fsdp1_init, "_move_states_to_device", _fsdp1_devices.move)
    changes.wrap(flat_param, "_free_storage", _free)
    changes.wrap(flat_param, "_alloc_storage", _alloc)
    changes.wrap(flat_param, "_same_storage", _same_storage)
    changes.wrap(flat_param, "_same_storage_size", _same_storage_size)
    changes.wrap(flat_param, "_storage_size_allocated", _is_allocated)
    changes.wrap(flat_param, "_data_ptr_allocated", _is_allocated)
    handle = flat_param.FlatParamHandle
    changes.wrap(handle, "shard", _shard)
    changes.wrap(handle, "_check_on_compute_device", _check_device)
    changes.wrap(handle, "_check_low_precision_shard", _check_low_precision)
    changes.wrap(handle, "_free_unsharded_flat_param", _free_then_follow)
    changes.wrap(handle, "_use_unsharded_flat_param", _use_then_follow)
    changes.wrap(handle, "_free_low_precision_sharded_param", _free_then_follow)
    changes.wrap(handle, "to_cpu", _fsdp1_devices.to_cpu)
    changes.wrap(handle, "flat_param_to", _fsdp1_devices.flat_param_to)
    changes.wrap(fsdp1_runtime, "_catch_all_reshard", _reshard_all)
    changes.wrap(fsdp1_extensions, "_create_chunk_sharded_tensor", _fsdp1_devices.chunk)


_patches = Patches("adapters.fsdp1", _make)


def install() -> None:
    """Have FullyShardedDataParallel take XLA tensors. Includes `adapters.dtensor.install()`.

    What is gathered is freed and comes back, where FSDP resizes its storage: that of an XLA tensor
    cannot be. Where FSDP asks storages for their size and address, it is told what those of CUDA
    would say. With `offload_to_cpu`, parameters of the CPU stand in for those of the module.
    """
    _patches.install()


def uninstall() -> None:
    """Undo install, and with it `adapters.dtensor.install()`, if nobody else needs that."""
    _patches.uninstall()


def installed() -> contextlib.AbstractContextManager[None]:
    """install() for a block. It ends with the last block of all threads, or with uninstall()."""
    return _patches.installed()
