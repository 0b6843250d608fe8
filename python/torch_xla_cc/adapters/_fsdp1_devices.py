"""Where FSDP1 has parameters on two kinds of devices. Each function stands before one of torch's.

An XLA tensor cannot become one of the CPU, or the other way, and stay the same: `x.data = y` takes
no tensor of another kind.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch_xla
from torch import nn

from torch_xla_cc._runtime.private import flat_param
from torch_xla_cc.adapters import _modules, _storage, _xla_device

_Theirs = Callable[..., Any]


def handle_of(theirs: _Theirs, device: torch.device) -> Any:  # noqa: ANN401
    """_FSDPDeviceHandle.from_device: of a device that is a number torch would make one of CUDA."""
    if device.type != "xla":
        return theirs(device)
    return SimpleNamespace(**{**vars(_xla_device), "current_device": torch_xla.device})


def move(
    theirs: _Theirs,
    parameters: list[nn.Parameter],
    buffers: list[torch.Tensor],
    device: torch.device | None,
) -> None:
    """_move_states_to_device: `x.data = ` takes no tensor of another kind of device."""
    if device is None or device.type != "xla":
        theirs(parameters, buffers, device)
        return
    for parameter in parameters:
        moved = nn.Parameter(parameter.detach().to(device), parameter.requires_grad)
        moved.grad = None if parameter.grad is None else parameter.grad.to(device)
        _modules.become(parameter, moved)
    for buffer in buffers:
        torch.utils.swap_tensors(buffer, buffer.to(device))


def flat_param_to(theirs: _Theirs, handle: Any, *args: Any, **options: Any) -> None:  # noqa: ANN401
    """flat_param_to. To the CPU it is asked to go for cpu_offload, and in to_cpu, which is ours."""
    device = torch.device(args[0]) if args else None
    if _storage.is_ours(handle.flat_param) and device and device.type == "cpu":
        raise NotImplementedError(
            "FullyShardedDataParallel(cpu_offload=CPUOffload(offload_params=True)): an XLA tensor "
            "cannot become one of the CPU and remain the same parameter. Leave cpu_offload out"
        )
    theirs(handle, *args, **options)


@contextlib.contextmanager
def to_cpu(theirs: _Theirs, handle: Any) -> Iterator[None]:  # noqa: ANN401
    """to_cpu. An XLA tensor cannot become one of the CPU: others stand in for it meanwhile."""
    own = handle.flat_param
    if not _storage.is_ours(own):
        with theirs(handle):
            yield
        return
    copy = flat_param.FlatParameter(own.detach().cpu(), requires_grad=own.requires_grad)
    vars(copy).update(vars(own))
    stand_ins: dict[torch.Tensor, nn.Parameter] = {}  # a weight that is there twice has one
    for name in ("_params", "_shared_params"):
        for x in getattr(own, name) or ():
            stand_ins.setdefault(x, nn.Parameter(copy.detach().new_empty(0), x.requires_grad))
        setattr(copy, name, getattr(own, name) and [stand_ins[x] for x in getattr(own, name)])
    handle._free_unsharded_flat_param()
    handle.flat_param = copy
    if handle._use_orig_params:
        handle._use_unsharded_views(as_params=True)
    try:
        yield
    finally:
        handle.flat_param = own
        padded = handle._alloc_padded_unsharded_flat_param()
        padded[: copy.numel()].copy_(copy.detach())
        handle._use_unsharded_flat_param(padded)
        if not handle._use_orig_params:
            handle._use_unsharded_views(as_params=False)
            registered = handle._fully_sharded_module._parameters
            registered.update({name: own for name, x in registered.items() if x is copy})


def chunk(theirs: _Theirs, tensor: torch.Tensor, *args: Any, **options: Any) -> Any:  # noqa: ANN401
    """_create_chunk_sharded_tensor, of the tensor's device: of a group it would be the CPU."""
    if _storage.is_ours(tensor):
        options.setdefault("device", tensor.device)
    return theirs(tensor, *args, **options)
