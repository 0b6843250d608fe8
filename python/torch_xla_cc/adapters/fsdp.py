"""fully_shard of torch (FSDP2) on XLA devices."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param

from torch_xla_cc.adapters import dtensor

# What torch registers for CUDA and others. They are made of operators that XLA has. The key is that
# of autograd, which comes before functionalization: there they could not write to their arguments.
_OPERATORS = {
    "all_gather_copy_in": _fsdp_collectives.all_gather_copy_in_cuda,
    "split_with_sizes_copy": _fsdp_collectives.split_with_sizes_copy,
    "chunk_cat": _fsdp_collectives.chunk_cat,
    "copy_": _fsdp_param.copy_,
}

_lock = threading.Lock()
_library: list[Any] = []
_free_storage = _fsdp_param.free_storage


def _free(tensor: torch.Tensor) -> None:
    if tensor.device.type != "xla":
        _free_storage(tensor)


def install() -> None:
    """Have fully_shard take XLA tensors. Includes `adapters.dtensor.install()`.

    The operators `fsdp::*` are registered for XLA. `free_storage` of FSDP does nothing for XLA
    tensors, whose storage cannot be resized.
    """
    dtensor.install()
    with _lock:
        if not _library:
            _library.append(torch.library.Library("fsdp", "IMPL"))
            for name, function in _OPERATORS.items():
                _library[0].impl(name, function, "AutogradXLA")
        _fsdp_param.free_storage = _free


def uninstall() -> None:
    """Undo install, and `adapters.dtensor.install()`."""
    with _lock:
        _fsdp_param.free_storage = _free_storage
        while _library:
            _library.pop()._destroy()
    dtensor.uninstall()
