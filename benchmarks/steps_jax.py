"""The steps of steps_mlp.py in JAX, as people write them there: jit, and a sharding of each array.

python steps_jax.py OUT RANKS PLATFORM: writes OUT/HOW.hlo, the module that JAX gives the compiler.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import steps_sizes as sizes


def adamw(parameters: Any, gradients: Any, state: Any) -> Any:
    """torch's, of its default rates."""
    import jax
    from jax import numpy as jnp

    count, *moments = state
    count = count + 1.0
    first, second = (
        jax.tree.map(lambda m, g, k=k, b=b: m * b + (1 - b) * g**k, of, gradients)
        for k, (b, of) in enumerate(zip((0.9, 0.999), moments, strict=True), 1)
    )

    def change(p: Any, m: Any, v: Any) -> Any:
        rate = jnp.sqrt(v / (1 - 0.999**count)) + 1e-8
        return p * (1 - 1e-3 * 1e-2) - 1e-3 * m / (1 - 0.9**count) / rate

    return jax.tree.map(change, parameters, first, second), (count, first, second)


def module(how: str, ranks: int, platform: str) -> bytes:
    """Of a step that gives new parameters and states for the old."""
    import jax
    import numpy as np
    from jax import numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices("cpu")[:ranks]), ("x",))

    def place(*axes: Any) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*axes))

    whole, rows, columns = place(), place("x"), place(None, "x")
    placed = {
        "ddp": (whole, whole, whole, whole),
        "fsdp": (rows, rows, rows, rows),
        "fsdp_bf16": (rows, rows, rows, rows),
        "tp": (columns, rows, rows, whole),
        "sp": (columns, rows, rows, whole),
    }[how]
    shapes = (
        *((sizes.WIDTH, sizes.INNER), (sizes.INNER,)),
        *((sizes.INNER, sizes.WIDTH), (sizes.WIDTH,)),
    )
    layer = [
        jax.ShapeDtypeStruct(shape, "float32", sharding=at)
        for shape, at in zip(shapes, placed, strict=True)
    ]
    parameters = [layer] * sizes.LAYERS
    between = whole if how == "tp" else rows
    tokens = sizes.TOKENS * (1 if how in ("tp", "sp") else ranks)
    x = jax.ShapeDtypeStruct((tokens, sizes.WIDTH), "float32", sharding=between)
    state = (jax.ShapeDtypeStruct((), "float32", sharding=whole), parameters, parameters)

    def loss(parameters: Any, x: Any) -> Any:
        if "bf16" in how:
            parameters, x = jax.tree.map(lambda one: one.astype("bfloat16"), (parameters, x))
        for up, up_bias, down, down_bias in parameters:
            hidden = jax.nn.gelu(x @ up + up_bias, approximate=False)
            x = jax.lax.with_sharding_constraint(hidden @ down + down_bias, between)
        return jnp.square(x.astype("float32")).mean()

    def step(parameters: Any, state: Any, x: Any) -> Any:
        return adamw(parameters, jax.grad(loss)(parameters, x), state)

    given = (parameters, state)
    kept = jax.tree.map(lambda one: one.sharding, given)
    jitted = jax.jit(step, out_shardings=kept)
    lowered = jitted.trace(*given, x).lower(lowering_platforms=(platform,))
    return bytes(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())


def main() -> None:
    out, ranks, platform = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={ranks}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    # Shardy's custom calls are for the partitioner of a later step; GSPMD's are in the module.
    jax.config.update("jax_use_shardy_partitioner", False)
    for how in sizes.HOW:
        (out / f"{how}.hlo").write_bytes(module(how, ranks, platform))


if __name__ == "__main__":
    main()
