"""Hugging Face accelerate on XLA devices, with collectives of torch.distributed.

from torch_xla_cc.adapters import accelerate
accelerate.install()                              # before accelerate is imported
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import torch
import torch.distributed as dist

from torch_xla_cc.adapters import _modules
from torch_xla_cc.distributed import BACKEND

_lock = threading.Lock()
_VARIABLES = {"USE_TORCH_XLA": "0", "ACCELERATE_TORCH_DEVICE": "xla"}
_before: dict[str, str | None] = {}
_theirs: dict[str, tuple[Any, Any]] = {}  # name of what is replaced: where, what it was


def install() -> None:
    """Have Accelerator() train on XLA devices as DistributedDataParallel does. It sets:

    - `USE_TORCH_XLA=0`: accelerate's own way to XLA devices asks torch_xla who is in the world, and
      that knows no world of several CPU processes. It is read when accelerate is imported;
    - `ACCELERATE_TORCH_DEVICE=xla`;
    - PartialState.__init__: each is as for CPU processes, which takes whatever group of processes
      exists. If there is none, one of "cpu:gloo,xla:xla_cc" is made here;
    - how modules move to another device: they keep their parameters, which an optimizer may have
      already, and weights that they share;
    - Accelerator.get_state_dict, of which states and models are saved: it gives tensors of the
      host; and storage_ptr of safetensors.torch. Both are about where tensors lie in memory, which
      XLA tensors do not know.
    """
    with _lock:
        if _before:
            return
        _refuse_late()
        _before.update({name: os.environ.get(name) for name in _VARIABLES})
        os.environ.update(_VARIABLES)

        import safetensors.torch
        from accelerate import Accelerator, PartialState  # type: ignore[import-untyped]

        for where, ours in (
            (PartialState, __init__),
            (Accelerator, get_state_dict),
            (safetensors.torch, storage_ptr),
        ):
            name = ours.__name__
            _theirs[name] = where, getattr(where, name)
            setattr(where, name, ours)

        if not dist.is_initialized():
            dist.init_process_group(f"cpu:gloo,xla:{BACKEND}")
        _modules.install()


def uninstall() -> None:
    """Undo install. An accelerate that has been imported goes on without torch_xla."""
    with _lock:
        if _before:
            for name, value in _before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
            _modules.uninstall()
            sys.modules["accelerate"].PartialState._reset_state()
            for name, (where, theirs) in _theirs.items():
                setattr(where, name, theirs)
            _before.clear()


def __init__(state: Any, cpu: bool = False, **options: Any) -> None:  # noqa: ANN401
    """PartialState.__init__."""
    _, theirs = _theirs["__init__"]
    theirs(state, cpu=True, **options)
    state.backend = BACKEND  # by which it chooses between forms of all_gather


def get_state_dict(
    accelerator: Any,  # noqa: ANN401
    model: torch.nn.Module,
    unwrap: bool = True,
) -> dict[str, Any]:
    """Accelerator.get_state_dict."""
    _, theirs = _theirs["get_state_dict"]
    copies: dict[object, torch.Tensor] = {}  # one of a weight that modules share

    def on_host(x: object) -> object:
        if not isinstance(x, torch.Tensor) or x.device.type != "xla":
            return x
        place = storage_ptr(x), x.storage_offset(), x.shape, x.stride()
        if place not in copies:
            copies[place] = x.cpu()
        return copies[place]

    return {name: on_host(x) for name, x in theirs(accelerator, model, unwrap).items()}


def storage_ptr(tensor: torch.Tensor) -> int:
    """storage_ptr of safetensors.torch: one number for all views of a tensor."""
    if tensor.device.type == "xla":
        return int(tensor.untyped_storage()._cdata)
    return int(_theirs["storage_ptr"][1](tensor))


def _refuse_late() -> None:
    imports = sys.modules.get("accelerate.utils.imports")
    if imports is not None and imports.is_torch_xla_available():
        raise RuntimeError(
            "adapters.accelerate.install: accelerate was imported with USE_TORCH_XLA = "
            f"{os.environ.get('USE_TORCH_XLA')!r}, but it must be '0'. Call install() before "
            "accelerate is imported."
        )
    if imports is not None and sys.modules["accelerate"].PartialState._shared_state:
        raise RuntimeError(
            "adapters.accelerate.install: there is an Accelerator or PartialState already, but "
            "its device must be chosen here. Call install() before it is made."
        )
