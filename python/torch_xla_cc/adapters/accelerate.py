"""Hugging Face accelerate on XLA devices, with collectives of torch.distributed.

from torch_xla_cc.adapters import accelerate
accelerate.install()                              # before accelerate is imported
"""

from __future__ import annotations

import os
import sys
import threading

import torch
import torch.distributed as dist

from torch_xla_cc.distributed import BACKEND

_lock = threading.Lock()
_VARIABLES = {"USE_TORCH_XLA": "0", "ACCELERATE_TORCH_DEVICE": "xla"}
_before: dict[str, str | None] = {}
_swapped = False


def install() -> None:
    """Have Accelerator() train on XLA devices as DistributedDataParallel does. It sets:

    - `USE_TORCH_XLA=0`: accelerate's own way to XLA devices asks torch_xla who is in the world, and
      that knows no world of several CPU processes. It is read when accelerate is imported;
    - `ACCELERATE_TORCH_DEVICE=xla`;
    - accelerate's PartialState, made here: as for CPU processes, which it gives to whatever process
      group exists. If there is none, one of "cpu:gloo,xla:xla_cc" is made;
    - torch.__future__.set_swap_module_params_on_conversion(True): `Module.to` keeps parameters as
      the objects that they are, so that an optimizer made before `prepare` has them on the device.
    """
    global _swapped
    with _lock:
        if _before:
            return
        _refuse_late()
        _before.update({name: os.environ.get(name) for name in _VARIABLES})
        os.environ.update(_VARIABLES)
        _swapped = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)

        from accelerate import PartialState  # type: ignore[import-untyped]

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
            torch.__future__.set_swap_module_params_on_conversion(_swapped)
            sys.modules["accelerate"].PartialState._reset_state()
            _before.clear()


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
