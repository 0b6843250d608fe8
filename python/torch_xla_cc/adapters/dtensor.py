"""DeviceMesh and DTensor of torch.distributed on XLA devices.

In their way in torch 2.9 are:

- For the device type "xla" a DeviceMesh makes no groups, and `distribute_tensor` and
  `distribute_module` go to torch_xla's SPMD mode, where one process drives all devices. With one
  device a rank and a backend for it, XLA devices need no way of their own.
- A tensor subclass is called with functionalization switched off, which XLA tensors live by: views
  of theirs are an internal error there, and would not be views.
- There is no `torch.xla`, which a mesh asks for the number of devices, and torch.utils.checkpoint
  for the random state.
- Random numbers are those of CUDA's generator.
- Three functions, and the loss of loss_parallel: see _dtensor_functions.py; `where` of numbers,
  and reductions of no named dimension: see _dtensor_operators.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel.loss import customized_loss_ops

from torch_xla_cc._runtime.patches import Changes, Patches
from torch_xla_cc._runtime.private import (
    Shard,
    disable_dynamo,
    dtensor_random,
    embedding_ops,
    functional_collectives,
    is_functional_tensor,
    torch_c,
)
from torch_xla_cc.adapters import (
    _device_module,
    _dtensor_clip,
    _dtensor_functions,
    _dtensor_operators,
    _dtensor_optimizers,
    _dtensor_parts,
    _dtensor_random,
)

# Each compares the device type of a mesh with this constant, and goes another way if it is that.
_SPECIAL = "xla"
_NO_DEVICE = "xla in SPMD mode"  # no device type is called that

_FUNCTIONS = [
    cast("FunctionType", function)
    for function in (DeviceMesh.__init__, distribute_tensor, distribute_module)
]

_dispatch = DTensor.__dict__["__torch_dispatch__"]
_maybe_wrap_tensor = functional_collectives._maybe_wrap_tensor


def _leaves(arguments: Iterable[object]) -> Iterator[object]:
    """Of an operator's, whose tensors may be in lists."""
    for x in arguments:
        if type(x) is list or type(x) is tuple:
            yield from _leaves(x)
        else:
            yield x


def _refuse_mixed(func: object, arguments: Iterable[object]) -> None:
    """Functionalization comes before DTensor where an argument is an XLA tensor.

    It has unwrapped that argument then, and would wrap the DTensor that is given back: something
    that is a tensor by its type, and a DTensor inside.
    """
    for x in _leaves(arguments):
        if isinstance(x, DTensor) or not isinstance(x, torch.Tensor) or x.device.type != "xla":
            continue
        if not is_functional_tensor(x):
            # (Not a TypeError: of an operator of Python that would lose its message.)
            raise ValueError(
                f"{func}: an argument is an XLA tensor of shape {list(x.shape)}, but all must be "
                "DTensors if one is. Make it one: "
                "DTensor.from_local(x, mesh, [Replicate()] * mesh.ndim)"
            )


@disable_dynamo  # type: ignore[untyped-decorator]  # as torch's
def _dispatch_with_views(
    cls: type[DTensor],
    func: Any,  # noqa: ANN401 (as in torch)
    types: Any,  # noqa: ANN401
    args: Any = (),  # noqa: ANN401
    kwargs: Any = None,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """DTensor's `__torch_dispatch__`, with functionalization on."""
    _refuse_mixed(func, (*args, *kwargs.values()) if kwargs else args)
    with torch_c._ForceDispatchKeyGuard(
        torch_c._dispatch_tls_local_include_set(),
        torch_c._dispatch_tls_local_exclude_set().remove(torch_c.DispatchKey.Functionalize),
    ):
        func, args = _dtensor_operators.prepared(func, args)
        return _dispatch.__func__(cls, func, types, args, kwargs)


def _wrap_but_xla(tensor: torch.Tensor) -> torch.Tensor:
    """The result of a functional collective: AsyncCollectiveTensor, unless nobody needs to wait."""
    wrap = functional_collectives.wait_tensor if tensor.device.type == "xla" else _maybe_wrap_tensor
    wrapped: torch.Tensor = wrap(tensor)
    return wrapped


def _make(changes: Changes) -> None:
    changes.enter(_device_module.patches.held())
    changes.put(dtensor_random, "_rng_tracker", _dtensor_random.Tracker())
    for function in _FUNCTIONS:
        constants = function.__code__.co_consts
        changed = tuple(_NO_DEVICE if constant == _SPECIAL else constant for constant in constants)
        # In the function itself, and not its name: many modules have imported it by name.
        changes.put(function, "__code__", function.__code__.replace(co_consts=changed))
    changes.enter(_dtensor_operators.kernels())
    changes.put(DTensor, "__torch_dispatch__", classmethod(_dispatch_with_views))
    changes.wrap(Shard, "_replicate_to_shard", _dtensor_parts.replicate_to_shard)
    changes.wrap(Shard, "_shard_tensor", _dtensor_parts.shard_tensor)
    masked = embedding_ops._MaskPartial
    changes.wrap(masked, "_partition_value", _dtensor_parts.partition_value)
    changes.wrap(embedding_ops.MaskBuffer, "apply_mask", _dtensor_parts.apply_mask)
    changes.put(_dtensor_clip.FUNCTION, "__code__", _dtensor_clip.CODE)
    for module, name in _dtensor_optimizers.functions():
        changes.wrap(module, name, _dtensor_optimizers.step)
    changes.put(functional_collectives, "_maybe_wrap_tensor", _wrap_but_xla)
    for name, (_, ours) in _dtensor_functions.REPLACED.items():
        changes.put(nn.functional, name, ours)
    for operator, (_, ours) in _dtensor_functions.LOSS_OPERATORS.items():
        changes.item(customized_loss_ops, operator, ours)


patches = Patches("adapters.dtensor", _make)


def install() -> None:
    """Have meshes of "xla" be like those of other devices, and DTensors hold XLA tensors.

    In the code of DeviceMesh, distribute_tensor and distribute_module of torch.distributed, the
    constant "xla", which a device type is compared with, becomes one that no device type equals.
    torch_xla's SPMD mode is then to be called by its own names (torch_xla.distributed.spmd).
    `__torch_dispatch__` of DTensor runs with functionalization on, and takes no XLA tensors beside
    DTensors; functional collectives give
    XLA tensors, where torch gives an AsyncCollectiveTensor, which is a subclass too.
    `torch.xla` is registered as the module of XLA devices, with streams and events that do nothing.
    DTensor's random operators draw from seeds that depend on the shard. torch.nn.functional's
    layer_norm normalizes what each rank has, its scaled_dot_product_attention attends within what
    each rank has of batches and heads, and its cross_entropy takes a target that is a tensor; and
    loss_parallel keeps the total of its weights as a DTensor. `where` of a number, also in formulas
    of gradients, makes a DTensor of it, and reductions of no named dimension reduce all.
    torch.norm of a DTensor is torch.linalg.vector_norm, as on other devices.
    torch.nn.utils.clip_grad_norm_ is torch's own again where gradients are DTensors, and optimizers
    of torch.optim that treat each element alike step a rank's own parts.
    """
    patches.install()


def uninstall() -> None:
    """Undo install."""
    patches.uninstall()


def installed() -> contextlib.AbstractContextManager[None]:
    """install() for a block. It ends with the last block of all threads, or with uninstall()."""
    return patches.installed()
