"""DeepSpeed on XLA devices.

from torch_xla_cc.adapters import deepspeed
deepspeed.install()                               # before deepspeed.initialize or init_distributed
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch_xla
from deepspeed import accelerator  # type: ignore[import-untyped]
from deepspeed.ops.adam import fused_adam  # type: ignore[import-untyped]
from deepspeed.runtime import utils  # type: ignore[import-untyped]
from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import (  # type: ignore[import-untyped]
    TorchCheckpointEngine,
)
from deepspeed.runtime.engine import DeepSpeedEngine  # type: ignore[import-untyped]
from deepspeed.runtime.fp16 import loss_scaler  # type: ignore[import-untyped]
from deepspeed.runtime.zero import stage3, stage_1_and_2  # type: ignore[import-untyped]
from deepspeed.runtime.zero import utils as zero_utils
from deepspeed.utils import nvtx  # type: ignore[import-untyped]

import torch_xla_cc.distributed  # noqa: F401 (registers the backend)
from torch_xla_cc._ops.call_modes import on_paper
from torch_xla_cc._runtime.device_tensors import one_step
from torch_xla_cc._runtime.patches import Changes, Patches
from torch_xla_cc.adapters import _deepspeed_parts, _deepspeed_stage3, _device_module, _modules
from torch_xla_cc.adapters._deepspeed import FusedAdamBuilder, XlaAccelerator


def _make(changes: Changes) -> None:
    changes.after(accelerator.set_accelerator, accelerator.get_accelerator())
    accelerator.set_accelerator(XlaAccelerator())
    changes.put(nvtx, "enable_nvtx", False)  # XlaAccelerator has no such ranges
    changes.put(fused_adam, "FusedAdamBuilder", FusedAdamBuilder)
    changes.wrap(DeepSpeedEngine, "__init__", _init)
    changes.put(DeepSpeedEngine, "_get_shared_params", _shared_params)
    changes.wrap(DeepSpeedEngine, "zero_reduce_bucket_size", _bucket_of_model)
    changes.wrap(TorchCheckpointEngine, "load", _load_to_host)
    changes.wrap(stage3.DeepSpeedZeroOptimizer_Stage3, "load_state_dict", _load_apart)
    changes.wrap(DeepSpeedEngine, "_take_model_step", _one_step)
    zero = stage_1_and_2.DeepSpeedZeroOptimizer
    changes.wrap(zero, "unscale_and_clip_grads", _unscale_and_clip)
    _deepspeed_parts.install(changes)
    _deepspeed_stage3.install(changes)
    for module in (utils, loss_scaler, stage_1_and_2, stage3):
        changes.put(module, "has_inf_or_nan", _has_inf_or_nan)
    changes.wrap(zero_utils, "get_lst_from_rank0", _of_rank_0)
    changes.wrap(zero_utils, "assert_lst_len_same_as_other_ranks", _length_of_rank_0)
    changes.enter(_modules.patches.held())
    changes.enter(_device_module.patches.held())


_patches = Patches("adapters.deepspeed", _make, ("deepspeed",))


def install() -> None:
    """Have DeepSpeed run on XLA devices. It sets, in this process:

    - deepspeed's accelerator: `XlaAccelerator`;
    - the kernel of deepspeed's FusedAdam, which it has chosen for another device at import;
    - how modules move to another device: they keep their parameters, which an optimizer may have
      already; and DeepSpeedEngine.__init__, which moves the model: before it refers to parameters
      in a way (weakref) in which they cannot;
    - DeepSpeedEngine._get_shared_params, for checkpoints: it takes parameters for one if their
      `data_ptr()` is, and on XLA devices that is 0 for all;
    - TorchCheckpointEngine.load: deepspeed says by a function that all tensors go to the host, and
      torch takes no function for those of XLA devices;
    - DeepSpeedZeroOptimizer_Stage3.load_state_dict: it copies parameters between tensors of one
      type, which in torch_xla are of one buffer then, and a step of the optimizer ends that one;
    - DeepSpeedEngine.zero_reduce_bucket_size: no larger than the model. The default is 5e8, and
      ZeRO makes a buffer of that size, and writes gradients into parts of it;
    - has_inf_or_nan: it calls `amax()`, and torch_xla 2.9 reduces nothing there;
    - DeepSpeedEngine._take_model_step: with adapters.optimizers it ends one step of the device, the
      gathering of parameters included, and not one for each group of parameters;
    - DeepSpeedZeroOptimizer.unscale_and_clip_grads, of ZeRO 1 and 2: it reads once more whether the
      norm is finite;
    - zero.utils.get_lst_from_rank0 and assert_lst_len_same_as_other_ranks, by which ZeRO 3 compares
      lists: they go by the world's CPU backend, and nowhere in a dry-run world;
    - how ZeRO 1 to 3 reduce gradients, and cut what a rank owns: where programs have to be the same
      on all ranks, they are (_deepspeed_parts.py, _deepspeed_fragments.py, _deepspeed_stage3.py).
      With offload, a model parallel group, mixture of experts and what docs/clients/deepspeed.md
      lists beside them, it is as DeepSpeed has it.
    """
    _patches.install()


def uninstall() -> None:
    """Undo install."""
    _patches.uninstall()


def installed() -> contextlib.AbstractContextManager[None]:
    """install() for a block. It ends with the last block of all threads, or with uninstall()."""
    return _patches.installed()


def _init(
    theirs: Callable[..., None],
    engine: Any,  # noqa: ANN401 (an engine of deepspeed)
    args: Any,  # noqa: ANN401
    model: torch.nn.Module,
    *more: Any,  # noqa: ANN401
    dont_change_device: bool = False,
    **options: Any,  # noqa: ANN401
) -> None:
    """DeepSpeedEngine.__init__."""
    if not dont_change_device:
        model.to(torch_xla.device())
    theirs(engine, args, model, *more, dont_change_device=dont_change_device, **options)


def _shared_params(engine: Any) -> dict[str, str]:  # noqa: ANN401
    """Of parameters that have several names: each further name, with the first."""
    first: dict[int, str] = {}
    names = engine.module.named_parameters(remove_duplicate=False)
    return {
        name: first[id(parameter)]
        for name, parameter in names
        if first.setdefault(id(parameter), name) != name
    }


def _bucket_of_model(theirs: Callable[..., int], engine: Any) -> int:  # noqa: ANN401
    """DeepSpeedEngine.zero_reduce_bucket_size."""
    parameters = engine.module.parameters()
    elements = sum(int(getattr(p, "ds_numel", p.numel())) for p in parameters)
    return min(int(theirs(engine)), elements)


def _load_to_host(
    theirs: Callable[..., Any],
    engine: Any,  # noqa: ANN401
    path: str,
    map_location: Any = None,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """TorchCheckpointEngine.load."""
    return theirs(engine, path, "cpu" if callable(map_location) else map_location)


def _load_apart(theirs: Callable[..., None], optimizer: Any, *args: Any, **options: Any) -> None:  # noqa: ANN401
    """DeepSpeedZeroOptimizer_Stage3.load_state_dict."""
    theirs(optimizer, *args, **options)
    for flat in optimizer.fp32_partitioned_groups_flat:
        flat.data.copy_(flat.data * 1)  # what an operator gives has a buffer of its own


def _one_step(theirs: Callable[..., None], engine: Any, *args: Any, **options: Any) -> None:  # noqa: ANN401
    """DeepSpeedEngine._take_model_step."""
    with one_step():
        theirs(engine, *args, **options)


def _unscale_and_clip(
    theirs: Callable[..., None],
    optimizer: Any,  # noqa: ANN401 (of ZeRO's stages 1 and 2)
    grad_groups_flat: list[Any],
    total_norm: Any,  # noqa: ANN401 (a tensor, a number, or None)
) -> None:
    """DeepSpeedZeroOptimizer.unscale_and_clip_grads. A norm that is none clips all to nothing."""
    groups = [group if isinstance(group, list) else [group] for group in grad_groups_flat]
    tensors = [*itertools.chain(*groups), total_norm]
    if optimizer.clip_grad <= 0.0 or not all(getattr(x, "is_xla", False) for x in tensors):
        theirs(optimizer, grad_groups_flat, total_norm)
        return
    norm = torch.where(total_norm.isfinite() & (total_norm >= 0), total_norm, torch.inf)
    clip = ((norm / optimizer.loss_scale + 1e-6) / optimizer.clip_grad).clamp(min=1.0)
    for gradient in tensors[:-1]:
        gradient.data.mul_(1.0 / (clip * optimizer.loss_scale))


def _of_rank_0(theirs: Callable[..., list[int]], numbers: list[int]) -> list[int]:
    """zero.utils.get_lst_from_rank0, whose program is another one on rank 0."""
    if on_paper():
        return numbers  # there is nobody to say them
    world = dist.group.WORLD
    assert world is not None  # or DeepSpeed could not ask
    try:
        world._get_backend(torch.device("cpu"))
    except RuntimeError:
        return theirs(numbers)
    said = torch.tensor(numbers, dtype=torch.int64)
    dist.broadcast(said, src=0)
    return said.tolist()


def _length_of_rank_0(theirs: Callable[..., None], numbers: list[int]) -> None:
    """zero.utils.assert_lst_len_same_as_other_ranks."""
    (length,) = zero_utils.get_lst_from_rank0([len(numbers)])
    if length != len(numbers):
        raise RuntimeError(
            f"zero.utils.assert_lst_len_same_as_other_ranks: lst has {len(numbers)} numbers on "
            f"rank {dist.get_rank()}, but it must have as many as on rank 0, {length}. Ranks use "
            "other modules or parameters than rank 0: let all ranks run the same"
        )


def _has_inf_or_nan(x: torch.Tensor) -> torch.Tensor:
    """Whether any element is, as a scalar on the device."""
    return (x._values() if x.is_sparse else x).isfinite().all().logical_not()
