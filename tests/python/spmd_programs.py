"""Programs on four partitions, each written once for torch_xla_cc and for JAX.

As a script it writes what they give in JAX, with gradients, or what they are lowered to there:
`python spmd_programs.py results results.npz`, `python spmd_programs.py hlo programs.npz`.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np


class Program(NamedTuple):
    function: Any  # of the collectives, and the shards
    ids: list[int]  # of the mesh
    shape: tuple[int, ...]
    names: tuple[str, ...]
    inputs: list[tuple[tuple[int, ...], tuple[Any, ...]]]  # shape and spec
    output: tuple[Any, ...]  # spec


def tensor_parallel(c, x, first, second):
    return c.psum(c.tanh(x @ first) @ second, "model")


def gathered_weights(c, x, first, second):
    return c.tanh(x @ c.all_gather(first, "x", 0)) @ c.all_gather(second, "x", 1)


def sequence(c, x, weight):
    whole = c.tanh(c.all_gather(x, "x", 0) @ weight)
    part = c.psum_scatter(whole * whole, "x", 0)
    return c.all_to_all(c.shift(part, "x") + part, "x", 1, 0)


def loss(c, x, y):
    difference = x - y
    return c.psum((difference * difference).sum(), "x")


def two_axes(c, x, weight):
    return c.shift(c.psum(x, "b") @ c.all_gather(weight, ("a", "b"), 0), "a")


LINE = ([0, 1, 2, 3], (4,), ("x",))
SHUFFLED = ([2, 0, 3, 1], (4,), ("x",))
GRID = ([0, 1, 2, 3], (2, 2))
SHUFFLED_GRID = ([3, 1, 0, 2], (2, 2), ("a", "b"))
CUT = ("x", None)
PROGRAMS = {
    "tensor_parallel": Program(
        tensor_parallel,
        *GRID,
        ("data", "model"),
        [((8, 16), ("data", None)), ((16, 32), (None, "model")), ((32, 16), ("model", None))],
        ("data", None),
    ),
    "gathered_weights": Program(
        gathered_weights,
        *LINE,
        [((8, 16), CUT), ((16, 32), CUT), ((32, 8), (None, "x"))],
        CUT,
    ),
    "sequence": Program(sequence, *LINE, [((16, 8), CUT), ((8, 8), (None, None))], CUT),
    "sequence_shuffled": Program(
        sequence, *SHUFFLED, [((16, 8), CUT), ((8, 8), (None, None))], CUT
    ),
    "loss": Program(loss, *SHUFFLED, [((16, 8), CUT), ((16, 8), CUT)], ()),
    "two_axes": Program(
        two_axes, *SHUFFLED_GRID, [((8, 8), ("a", "b")), ((4, 8), (("a", "b"), None))], ("a", None)
    ),
}


def inputs(program: Program) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(shape).astype(np.float32) for shape, _ in program.inputs]


def mapped_in_jax(program: Program) -> Any:
    """The function of whole arrays."""
    import jax
    from jax import lax
    from jax import numpy as jnp
    from jax.sharding import Mesh, PartitionSpec

    devices = np.array([jax.devices("cpu")[i] for i in program.ids]).reshape(program.shape)
    mesh = Mesh(devices, program.names)

    class Collectives:
        tanh = staticmethod(jnp.tanh)
        psum = staticmethod(lax.psum)

        @staticmethod
        def all_gather(x, axis, dim):
            return lax.all_gather(x, axis, axis=dim, tiled=True)

        @staticmethod
        def psum_scatter(x, axis, dim):
            return lax.psum_scatter(x, axis, scatter_dimension=dim, tiled=True)

        @staticmethod
        def shift(x, axis):
            n = mesh.shape[axis]
            return lax.ppermute(x, axis, [(i, (i + 1) % n) for i in range(n)])

        @staticmethod
        def all_to_all(x, axis, split, concat):
            return lax.all_to_all(x, axis, split, concat, tiled=True)

    return jax.shard_map(
        lambda *xs: program.function(Collectives, *xs),
        mesh=mesh,
        in_specs=tuple(PartitionSpec(*spec) for _, spec in program.inputs),
        out_specs=PartitionSpec(*program.output),
        check_vma=False,
    )


def in_jax(program: Program) -> tuple[np.ndarray, list[np.ndarray]]:
    """The result, and the gradients of the sum of its sines."""
    import jax
    from jax import numpy as jnp

    mapped = mapped_in_jax(program)
    xs = [jnp.asarray(x) for x in inputs(program)]
    grads = jax.jit(jax.grad(lambda *xs: jnp.sin(mapped(*xs)).sum(), range(len(xs))))(*xs)
    return np.asarray(jax.jit(mapped)(*xs)), [np.asarray(grad) for grad in grads]


def lowered_in_jax(program: Program) -> np.ndarray:
    """The bytes of the HLO of the sum, before XLA has partitioned it."""
    import jax
    from jax import numpy as jnp

    jax.config.update("jax_use_shardy_partitioner", False)  # torch_xla has the other
    mapped = mapped_in_jax(program)
    lowered = jax.jit(lambda *xs: jnp.sin(mapped(*xs)).sum()).lower(*inputs(program))
    module = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return np.frombuffer(module, np.uint8)


def mapped_in_torch(program: Program) -> Any:
    """The same by torch_xla_cc: the function, and its inputs on the device."""
    import torch
    import torch_xla
    import torch_xla.distributed.spmd as xs

    from torch_xla_cc import functions, spmd

    mesh = xs.Mesh(np.array(program.ids), program.shape, program.names)

    class Collectives:
        tanh = staticmethod(torch.tanh)

        @staticmethod
        def psum(x, axis):
            return functions.all_reduce("sum", x, groups=spmd.groups(mesh, axis))

        @staticmethod
        def all_gather(x, axis, dim):
            return functions.all_gather(x, dim, spmd.groups(mesh, axis))

        @staticmethod
        def psum_scatter(x, axis, dim):
            return functions.reduce_scatter("sum", x, 1.0, dim, groups=spmd.groups(mesh, axis))

        @staticmethod
        def shift(x, axis):
            rings = spmd.groups(mesh, axis)
            pairs = [pair for ring in rings for pair in zip(ring, ring[1:] + ring[:1], strict=True)]
            return functions.collective_permute(x, pairs)

        @staticmethod
        def all_to_all(x, axis, split, concat):
            return functions.all_to_all(x, split, concat, groups=spmd.groups(mesh, axis))

    mapped = spmd.shard_map(
        lambda *xs: program.function(Collectives, *xs),
        mesh,
        [spec for _, spec in program.inputs],
        program.output,
    )
    device = torch_xla.device()
    return mapped, [torch.from_numpy(x).to(device).requires_grad_() for x in inputs(program)]


def in_torch(name: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """The result, and the gradients of the sum of its sines."""
    import torch_xla

    mapped, tensors = mapped_in_torch(PROGRAMS[name])
    result = mapped(*tensors)
    result.sin().sum().backward()
    torch_xla.sync()
    return result.detach().cpu().numpy(), [x.grad.cpu().numpy() for x in tensors]


def main() -> None:
    found = {}
    what, file = sys.argv[1:]
    for name, program in PROGRAMS.items():
        if what == "hlo":
            found[name] = lowered_in_jax(program)
            continue
        result, grads = in_jax(program)
        found[name] = result
        found |= {f"{name} {i}": grad for i, grad in enumerate(grads)}
    np.savez(file, **found)


if __name__ == "__main__":
    main()
