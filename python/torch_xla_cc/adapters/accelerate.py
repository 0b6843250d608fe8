"""Hugging Face accelerate on XLA devices, with collectives of torch.distributed.

from torch_xla_cc.adapters import accelerate
accelerate.install()                              # before accelerate is imported
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from torch_xla_cc._runtime.patches import Changes, Patches
from torch_xla_cc.adapters import _device_module, _modules
from torch_xla_cc.distributed import BACKEND

_VARIABLES = {"USE_TORCH_XLA": "0", "ACCELERATE_TORCH_DEVICE": "xla"}


def _make(changes: Changes) -> None:
    _refuse_late()
    for name, value in _VARIABLES.items():
        changes.item(os.environ, name, value)
    changes.enter(_modules.patches.held())
    changes.enter(_device_module.patches.held())
    import safetensors.torch
    from accelerate import Accelerator, PartialState  # type: ignore[import-untyped]

    changes.wrap(PartialState, "__init__", _init_state)
    changes.wrap(Accelerator, "get_state_dict", _state_dict)
    # 0 is what nobody shares: a model that is loaded gets what is there under each name.
    changes.wrap(safetensors.torch, "storage_ptr", partial(_storage_ptr, lambda x: 0))
    if importlib.util.find_spec("transformers"):
        from transformers import masking_utils, pytorch_utils

        changes.wrap(masking_utils, "is_tracing", _is_tracing)
        # It saves weights that are shared once, and takes no two to be at one place.
        changes.wrap(pytorch_utils, "storage_ptr", partial(_storage_ptr, _storage))
    changes.after(PartialState._reset_state)
    if not dist.is_initialized():
        dist.init_process_group(f"cpu:gloo,xla:{BACKEND}")


_patches = Patches("adapters.accelerate", _make, ("accelerate", "transformers"))


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
      host; and storage_ptr of safetensors.torch and of transformers. All ask where tensors lie in
      memory, to find those that share it, and XLA tensors do not know;
    - is_tracing of transformers.masking_utils: XLA tensors are traced, and what masks are for is
      not read of them in each forward pass.
    """
    _patches.install()


def uninstall() -> None:
    """Undo install. An accelerate that has been imported goes on without torch_xla."""
    _patches.uninstall()


def installed() -> contextlib.AbstractContextManager[None]:
    """install() for a block. It ends with the last block of all threads, or with uninstall()."""
    return _patches.installed()


def _init_state(theirs: Any, state: Any, cpu: bool = False, **options: Any) -> None:  # noqa: ANN401
    """PartialState.__init__."""
    theirs(state, cpu=True, **options)
    state.backend = BACKEND  # by which it chooses between forms of all_gather


def _state_dict(theirs: Any, *args: Any, **options: Any) -> dict[str, Any]:  # noqa: ANN401
    """Accelerator.get_state_dict."""
    state = theirs(*args, **options)
    return {name: x.cpu() if isinstance(x, torch.Tensor) else x for name, x in state.items()}


def _is_tracing(theirs: Callable[..., bool], tensor: Any = None) -> bool:  # noqa: ANN401
    """Whether masks are to be made without a look at what is in them."""
    return theirs(tensor) or (isinstance(tensor, torch.Tensor) and tensor.device.type == "xla")


def _storage_ptr(of_xla: Callable[[torch.Tensor], int], theirs: Any, x: torch.Tensor) -> int:  # noqa: ANN401
    return of_xla(x) if x.device.type == "xla" else int(theirs(x))


def _storage(x: torch.Tensor) -> int:
    """One number for a tensor and all views of it."""
    return int(x.untyped_storage()._cdata)


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
