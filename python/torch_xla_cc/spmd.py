"""Collectives in torch_xla's SPMD mode: regions of a program that are sharded by hand.

    mesh = torch_xla.distributed.spmd.Mesh(range(4), (4,), ("x",))

    def block(x, weight):  # of one partition
        return functions.all_reduce("sum", x @ weight)

    whole = spmd.shard_map(block, mesh, [(None, "x"), ("x", None)], (None, None))
    y = whole(x, weight)

Inside of such a function, ranks are partitions: the ids of the mesh's devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd.graph import get_gradient_edge, saved_tensors_hooks
from torch_xla.distributed import spmd as xs

from torch_xla_cc import xla_model as xm
from torch_xla_cc._ops import partitions as _partitions
from torch_xla_cc._runtime.show import show

Axes = str | tuple[str, ...] | None  # of the mesh, along which a dimension is cut
Spec = tuple[Axes, ...]  # one for each dimension of a tensor


def groups(mesh: xs.Mesh, axis: Axes) -> list[list[int]]:
    """The partitions along one axis of a mesh, or several: one group for each place on the others.

    None gives groups of one.
    """
    names = _names(axis)
    for name in names:
        if name not in _axes(mesh):
            raise ValueError(
                f"groups: axis = {show(axis)}, but it must be of the mesh's: {_axes(mesh)}"
            )
    numbers = [mesh.get_axis_name_idx(name) for name in names]
    ids = np.moveaxis(mesh.get_logical_mesh(), numbers, range(-len(numbers), 0))
    found: list[list[int]] = ids.reshape(-1, _size(mesh, axis)).tolist()
    return found


def shard_map(
    fn: Callable[..., Any],
    mesh: xs.Mesh,
    in_specs: Sequence[Spec],
    out_specs: Spec | list[Spec],
) -> Callable[..., Any]:
    """`fn`, which is of one partition's shards, as a function of whole tensors; with gradients.

    As jax.shard_map with `check_vma=False`. What `fn` takes from around it gets no gradient: pass
    it as an argument.

    Args:
      fn: takes a shard of each tensor, and returns a tensor, or several of them.
      mesh: torch_xla.distributed.spmd.Mesh, with names for its axes.
      in_specs: for each argument, for each dimension the axes of the mesh along which it is cut.
        None: not cut. Along axes that it does not name, partitions have the same.
      out_specs: that of the result, a tuple; or a list of them if `fn` returns several tensors.
    """
    if not _axes(mesh):
        raise ValueError("shard_map: mesh has no names for its axes. Give them: Mesh(..., names)")
    one = isinstance(out_specs, tuple)
    specs = [out_specs] if isinstance(out_specs, tuple) else out_specs
    _check_specs(mesh, "in_specs", in_specs, in_specs)
    _check_specs(mesh, "out_specs", out_specs, specs)
    region = _Region(fn, mesh, list(in_specs), specs)

    def whole(*tensors: torch.Tensor) -> Any:  # noqa: ANN401 (a tensor, or several)
        region.check(tensors)
        if not torch.is_grad_enabled():
            tensors = tuple(tensor.detach() for tensor in tensors)  # nothing is kept then
        results = _ShardMap.apply(region, *tensors)  # type: ignore[no-untyped-call]
        return results[0] if one else results

    return whole


def _check_specs(mesh: xs.Mesh, argument: str, given: object, specs: Sequence[Spec]) -> None:
    """Raise for what is no list of specs. As one of JAX's, a tuple of specs is none."""
    known = _axes(mesh)
    if not isinstance(specs, (tuple, list)):
        raise ValueError(
            f"shard_map: {argument} = {show(given)}, but it must be a list of specs, one for each "
            "tensor. Pass [(...), (...)]"
        )
    for spec in specs:
        if not isinstance(spec, (tuple, list)):
            raise ValueError(
                f"shard_map: {argument} = {show(given)} has {show(spec)} for a spec, but each must "
                "be a tuple, with one entry for each dimension of a tensor. Pass [(...), (...)]"
            )
        for axes in spec:
            names = axes if isinstance(axes, tuple) else (axes,)
            allowed = [*known, *(() if isinstance(axes, tuple) else (None,))]
            if not all(name in allowed for name in names):
                raise ValueError(
                    f"shard_map: {argument} = {show(given)} has {show(axes)} for a dimension, but "
                    f"it must be None, one of the mesh's axes {known} or a tuple of them. Specs of "
                    "several tensors go in a list: [(...), (...)]"
                )


def _axes(mesh: xs.Mesh) -> tuple[str, ...]:
    return tuple(mesh.axis_names or ())


def _names(axes: Axes) -> tuple[str, ...]:
    return (axes,) if isinstance(axes, str) else axes or ()


def _size(mesh: xs.Mesh, axes: Axes) -> int:
    sizes: dict[str, int] = mesh.shape()
    return math.prod(sizes[name] for name in _names(axes))


class _Region:
    """The function of a partition, and the way in and out of its region."""

    def __init__(
        self, fn: Callable[..., Any], mesh: xs.Mesh, in_specs: list[Spec], out_specs: list[Spec]
    ) -> None:
        self.fn = fn
        self.mesh = mesh
        self.in_specs = in_specs
        self.out_specs = out_specs

    def check(self, tensors: Sequence[object]) -> None:
        """Raise unless there is a tensor on the XLA device for each spec."""
        if len(tensors) != len(self.in_specs):
            raise ValueError(
                f"shard_map: {len(tensors)} arguments, but there are {len(self.in_specs)} in_specs"
            )
        for index, one in enumerate(tensors):
            if not isinstance(one, torch.Tensor):
                raise TypeError(
                    f"shard_map: argument {index} = {show(one)}, but it must be a tensor. Have "
                    "the function take what is none from around it"
                )
            if one.device.type != "xla":
                raise ValueError(
                    f"shard_map: argument {index} is on {one.device}, but it must be on the XLA "
                    "device. Pass it .to(torch_xla.device())"
                )

    def results(self, *shards: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What the function returns."""
        found = self.fn(*shards)
        several = found if isinstance(found, (tuple, list)) else (found,)
        for index, one in enumerate(several):
            if not isinstance(one, torch.Tensor) or one.device.type != "xla":
                name = getattr(self.fn, "__name__", "fn")
                raise TypeError(
                    f"shard_map: result {index} of {name} = {show(one)}, but it must be a tensor "
                    "on the XLA device. Return a tensor, or a list of them"
                )
        if len(several) != len(self.out_specs):
            raise ValueError(
                f"shard_map: {len(several)} results, but there are {len(self.out_specs)} "
                "out_specs. Pass a list of one spec for each: [(...), (...)]"
            )
        return tuple(several)

    def enter(self, tensor: torch.Tensor, spec: Spec) -> torch.Tensor:
        """A partition's shard."""
        if len(spec) != tensor.dim():
            raise ValueError(
                f"shard_map: spec = {spec} of a tensor of shape {list(tensor.shape)}, but it must "
                "have one entry for each dimension"
            )
        for size, axes in zip(tensor.shape, spec, strict=True):
            if size % _size(self.mesh, axes) != 0:
                raise ValueError(
                    f"shard_map: spec = {spec} cuts {size} of shape {list(tensor.shape)} into "
                    f"{_size(self.mesh, axes)} parts, but they must be of one size. Pad the tensor"
                )
        # Of a tensor of its own, since this says for good how a tensor is sharded.
        return xs.enable_manual_sharding(_same(tensor), spec, mesh=self.mesh).global_tensor

    def leave(self, shard: torch.Tensor, spec: Spec) -> torch.Tensor:
        """The whole tensor of the partitions' shards."""
        if len(spec) != shard.dim():
            raise ValueError(
                f"shard_map: spec = {spec} of a result of shape {list(shard.shape)}, but it must "
                "have one entry for each dimension"
            )
        sizes = [n * _size(self.mesh, axes) for n, axes in zip(shard.shape, spec, strict=True)]
        # Of a tensor of its own, as above.
        return xs.disable_manual_sharding(
            _same(shard), spec, torch.Size(sizes), mesh=self.mesh
        ).global_tensor

    def others(self, spec: Spec) -> tuple[str, ...]:
        """The axes along which partitions have the same."""
        named = {name for axes in spec for name in _names(axes)}
        return tuple(name for name in _axes(self.mesh) if name not in named)

    def save(self, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Size | None]:
        """What the backward pass keeps: whole tensors. Shards would not live beyond a step."""
        if not _partitions.is_manual(tensor):
            return tensor, None
        rows = tensor.detach().reshape(1) if tensor.dim() == 0 else tensor.detach()
        spec = (_axes(self.mesh), *[None] * (rows.dim() - 1))
        return self.leave(rows, spec), tensor.shape

    def load(self, saved: tuple[torch.Tensor, torch.Size | None]) -> torch.Tensor:
        """The tensor that was saved."""
        tensor, shape = saved
        if shape is None:
            return tensor
        spec = (_axes(self.mesh), *[None] * (tensor.dim() - 1))
        return self.enter(tensor, spec).reshape(shape)


def _same(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, as another tensor of the graph."""
    detached = tensor.detach()
    return torch.view_copy(torch.view_copy(detached, (1, *detached.shape)), detached.shape)


class _ShardMap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, region: _Region, *tensors: torch.Tensor) -> Any:  # noqa: ANN401
        shards = [region.enter(x, s) for x, s in zip(tensors, region.in_specs, strict=True)]
        for shard, needed in zip(shards, ctx.needs_input_grad[1:], strict=True):
            shard.requires_grad_(needed)
        with (
            torch.set_grad_enabled(any(ctx.needs_input_grad)),
            saved_tensors_hooks(region.save, region.load),
        ):
            results = region.results(*shards)
        # Edges, and not tensors: shards that live when the step runs would end the process.
        ctx.region = region
        ctx.inputs = [get_gradient_edge(x) if x.requires_grad else None for x in shards]
        ctx.outputs = [get_gradient_edge(y) if y.requires_grad else None for y in results]
        whole = [region.leave(y, s) for y, s in zip(results, region.out_specs, strict=True)]
        ctx.mark_non_differentiable(
            *[x for x, edge in zip(whole, ctx.outputs, strict=True) if edge is None]
        )
        return tuple(whole)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:  # noqa: ANN401
        region: _Region = ctx.region
        outputs, shards = [], []
        for grad, spec, edge in zip(grads, region.out_specs, ctx.outputs, strict=True):
            if edge is not None:
                # The partitions that have the same share its gradient.
                outputs.append(edge)
                shards.append(region.enter(grad, spec) / _size(region.mesh, region.others(spec)))
        inputs = [edge for edge in ctx.inputs if edge is not None]
        found = iter(torch.autograd.grad(outputs, inputs, shards, allow_unused=True))
        results: list[torch.Tensor | None] = [None]
        for edge, spec in zip(ctx.inputs, region.in_specs, strict=True):
            shard: Any = None if edge is None else next(found)
            others = region.others(spec)
            if shard is not None and others:
                shard = xm.all_reduce(xm.REDUCE_SUM, shard, groups=groups(region.mesh, others))
            results.append(None if shard is None else region.leave(shard, spec))
        return tuple(results)
