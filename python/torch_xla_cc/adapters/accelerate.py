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

from torch_xla_cc.adapters._parameters import move
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
    - accelerate's PartialState, made here: as for CPU processes, which it gives to whatever process
      group exists. If there is none, one of "cpu:gloo,xla:xla_cc" is made;
    - Accelerator.prepare_model, which moves the model to the device: before, its parameters go
      there in such a way that an optimizer that has them already has them there;
    - Accelerator.get_state_dict, of which states and models are saved: it gives tensors of the
      host; and storage_ptr of safetensors.torch, for models that are loaded: 0 for XLA tensors.
      Both ask tensors where they lie in memory, to find those that share it.
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
            (Accelerator, prepare_model),
            (Accelerator, get_state_dict),
            (safetensors.torch, storage_ptr),
        ):
            name = ours.__name__
            _theirs[name] = where, getattr(where, name)
            setattr(where, name, ours)

        if not dist.is_initialized():
            dist.init_process_group(f"cpu:gloo,xla:{BACKEND}")
        # Later ones share this state. By its backend it chooses between forms of all_gather.
        PartialState(cpu=True).backend = BACKEND


def uninstall() -> None:
    """Undo install. An accelerate that has been imported goes on without torch_xla."""
    with _lock:
        if _before:
            for name, value in _before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
            sys.modules["accelerate"].PartialState._reset_state()
            for name, (where, theirs) in _theirs.items():
                setattr(where, name, theirs)
            _before.clear()


def prepare_model(
    accelerator: Any,  # noqa: ANN401
    model: torch.nn.Module,
    device_placement: bool | None = None,
    *more: Any,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> torch.nn.Module:
    """Accelerator.prepare_model."""
    if accelerator.device_placement if device_placement is None else device_placement:
        move(model.parameters(), accelerator.device)
    _, theirs = _theirs["prepare_model"]
    prepared: torch.nn.Module = theirs(accelerator, model, device_placement, *more, **options)
    return prepared


def get_state_dict(
    accelerator: Any,  # noqa: ANN401
    model: torch.nn.Module,
    unwrap: bool = True,
) -> dict[str, Any]:
    """Accelerator.get_state_dict."""
    _, theirs = _theirs["get_state_dict"]
    state = theirs(accelerator, model, unwrap)
    return {name: x.cpu() if isinstance(x, torch.Tensor) else x for name, x in state.items()}


def storage_ptr(tensor: torch.Tensor) -> int:
    """storage_ptr of safetensors.torch. It takes 0 for memory that nobody shares."""
    return 0 if tensor.device.type == "xla" else int(_theirs["storage_ptr"][1](tensor))


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
