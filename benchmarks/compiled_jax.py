"""The programs of compiled_programs.py as JAX traces them, by shard_map: bytes of HLO modules.

python compiled_jax.py OUT TARGET PROGRAM...: in a process with as many virtual devices as ranks.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import compiled_programs as programs


class Ops:
    """By jax.lax."""

    def __init__(self, model: int) -> None:
        import jax
        from jax import lax

        self._axes = {"all": ("data", "model"), "model": ("model",), "data": ("data",)}
        self._model, self._lax = model, lax
        self.relu, self.einsum = jax.nn.relu, jax.numpy.einsum
        self.softmax = jax.nn.softmax

        def pair(axis: str, forward_sums: bool) -> Any:
            def sums(x: Any) -> Any:
                return lax.psum(x, self._axes[axis])

            def same(x: Any) -> Any:
                return x

            forward, backward = (sums, same) if forward_sums else (same, sums)
            made = jax.custom_vjp(forward)
            made.defvjp(lambda x: (forward(x), None), lambda _, g: (backward(g),))
            return made

        self._copies = {axis: pair(axis, False) for axis in self._axes}
        self._reduces = {axis: pair(axis, True) for axis in self._axes}

    def split3(self, x: Any) -> Any:
        import jax

        return jax.numpy.split(x, 3, axis=1)

    def total(self, x: Any) -> Any:
        return x.astype("float32").sum()

    def gather(self, x: Any, axis: str) -> Any:
        return self._lax.all_gather(x, self._axes[axis], tiled=True)

    def scatter(self, x: Any, axis: str) -> Any:
        return self._lax.psum_scatter(x, self._axes[axis], tiled=True)

    def copy(self, x: Any, axis: str) -> Any:
        return self._copies[axis](x)

    def reduce(self, x: Any, axis: str) -> Any:
        return self._reduces[axis](x)

    def exchange(self, x: Any, axis: str) -> Any:
        return self._lax.all_to_all(x, self._axes[axis], 0, 0, tiled=True)

    def shift(self, x: Any, axis: str) -> Any:
        ring = [(i, (i + 1) % self._model) for i in range(self._model)]
        return self._lax.ppermute(x, axis, ring)


def module(program: programs.Program, platform: str, ranks: int, model: int) -> bytes:
    """The gradients of its loss."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    shapes = program.shapes(ranks, model)
    devices = np.array(jax.devices("cpu")[:ranks]).reshape(ranks // model, model)
    mesh, spec = Mesh(devices, ("data", "model")), PartitionSpec(("data", "model"))
    ops = Ops(model)

    def step(*given: Any) -> Any:
        return jax.grad(lambda *own: program.loss(ops, *own), tuple(range(len(given))))(*given)

    mapped = jax.shard_map(step, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    sharding = NamedSharding(mesh, spec)
    jitted = jax.jit(mapped, out_shardings=sharding)
    arguments = [
        jax.ShapeDtypeStruct((ranks * shape[0], *shape[1:]), "bfloat16", sharding=sharding)
        for shape in shapes
    ]
    lowered = jitted.trace(*arguments).lower(lowering_platforms=(platform,))
    return bytes(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())


def main() -> None:
    out, target, *names = sys.argv[1:]
    ranks, model = programs.mesh(target)
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={ranks}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    # Shardy's custom calls are for the partitioner of a later step; GSPMD's are in the module.
    jax.config.update("jax_use_shardy_partitioner", False)
    platform = "tpu" if target.startswith("tpu:") else "cuda"
    for program in programs.PROGRAMS:
        if program.name in names:
            hlo = module(program, platform, ranks, model)
            (Path(out) / f"{program.name}.hlo").write_bytes(hlo)


if __name__ == "__main__":
    main()
