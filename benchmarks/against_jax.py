"""Collectives on four virtual CPU devices against jax.shard_map of the same, in the same run.

Per op and size: one collective per step, and the marginal cost of a further one in a step of 32.
Both sides run in rounds that alternate, so that what else the machine does hits both; the figure is
the ratio of the medians.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

RANKS = 4
MANY = 32
SIZES = {"4 KiB": 1 << 10, "1 MiB": 1 << 18, "16 MiB": 1 << 22}  # f32 elements a device
ROUNDS = 5
NONE = "(none: x + 1)"  # what a step costs without a collective
RING = [[0, 1], [1, 2], [2, 3], [3, 0]]


def _steps(elements: int) -> int:
    return {1 << 10: 30, 1 << 18: 8, 1 << 22: 2}[elements]


def jax_ops() -> dict[str, Callable[[Any], Any]]:
    """The op on one shard, in JAX."""
    import jax
    from jax import lax

    def broadcast(x: Any) -> Any:
        return lax.psum(jax.numpy.where(lax.axis_index("x") == 0, x, 0), "x")

    ring = [tuple(pair) for pair in RING]
    return {
        "all_gather": lambda x: lax.all_gather(x, "x", tiled=True),
        "reduce_scatter": lambda x: lax.psum_scatter(x, "x", tiled=True),
        "all_reduce": lambda x: lax.psum(x, "x"),
        "collective_permute": lambda x: lax.ppermute(x, "x", ring),
        "all_to_all": lambda x: lax.all_to_all(x, "x", 0, 0, tiled=True),
        "collective_broadcast": broadcast,
        "send/recv": lambda x: lax.ppermute(x, "x", ring),
        NONE: lambda x: x + 1,
    }


def our_ops() -> dict[str, Callable[[Any], Any]]:
    """The op on this rank's tensor, in torch_xla_cc."""
    from torch_xla_cc import _C
    from torch_xla_cc import xla_model as xm

    ring = xm.Channel(RING)

    def send_recv(x: Any) -> Any:
        xm.send(x, ring)
        return xm.recv(x, ring)

    return {
        "all_gather": xm.all_gather,
        "reduce_scatter": lambda x: xm.reduce_scatter(xm.REDUCE_SUM, x),
        "all_reduce": lambda x: xm.all_reduce(xm.REDUCE_SUM, x),
        "collective_permute": lambda x: xm.collective_permute(x, RING),
        "all_to_all": lambda x: xm.all_to_all(x, 0, 0),
        "collective_broadcast": lambda x: _C.collective_broadcast(x, 0, None),
        "send/recv": send_recv,
        NONE: lambda x: x + 1,
    }


class JaxSide:
    """Runs steps of an op in JAX."""

    def __init__(self, elements: int) -> None:
        import jax
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        self._jax = jax
        self._mesh = Mesh(np.array(jax.devices("cpu")), ("x",))
        self._spec = PartitionSpec("x")
        sharding = NamedSharding(self._mesh, self._spec)
        host = np.ones(RANKS * elements, np.float32)
        # Results of a computation, as on our side: device_put takes NumPy's memory as it is, in
        # large pages, and a reduction that reads those is faster by a third.
        add = jax.jit(lambda x, i: x + i)
        self.inputs = [add(jax.device_put(host, sharding), i) for i in range(MANY)]
        self._compiled: dict[tuple[str, int], Any] = {}

    def step(self, name: str, count: int) -> Callable[[], None]:
        key = (name, count)
        if key not in self._compiled:
            op = jax_ops()[name]
            self._compiled[key] = self._jax.jit(
                self._jax.shard_map(
                    lambda *xs: [op(x) for x in xs],
                    mesh=self._mesh,
                    in_specs=self._spec,
                    out_specs=self._spec,
                    check_vma=False,
                )
            )
        function, inputs = self._compiled[key], self.inputs[:count]
        return lambda: self._jax.block_until_ready(function(*inputs))


def timed(step: Callable[[], None], steps: int) -> float:
    """Seconds a step."""
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - start) / steps


def measure(rank: int, barrier: Any, results: dict[Any, Any]) -> None:
    """Runs on every rank; rank 0 also runs JAX's rounds while the others wait."""
    import torch
    import torch_xla

    device = torch_xla.device()
    ops = our_ops()
    for size, elements in SIZES.items():
        inputs = [torch.ones(elements, device=device) + i for i in range(MANY)]
        torch_xla.sync(wait=True)
        jax_side = JaxSide(elements) if rank == 0 else None
        for name, op in ops.items():
            for count in (1, MANY):
                if elements == 1 << 22 and count == MANY and name not in NATIVE:
                    continue  # a gathered copy of each input would take 8 GiB
                xs = inputs[:count]

                def step(op: Any = op, xs: Any = xs) -> None:
                    outputs = [op(x) for x in xs]
                    torch_xla.sync(wait=True)
                    del outputs

                theirs = jax_side.step(name, count) if jax_side else None
                for _ in range(2):  # compile, both
                    step()
                    if theirs:
                        theirs()
                ours, jaxs = [], []
                steps = max(1, _steps(elements) // (1 if count == 1 else 4))
                for _ in range(ROUNDS):
                    barrier.wait()
                    ours.append(timed(step, steps))
                    barrier.wait()
                    if theirs:
                        jaxs.append(timed(theirs, steps))
                    barrier.wait()
                if rank == 0:
                    medians = [statistics.median(side) for side in (ours, jaxs)]
                    results[name, size, count] = medians


NATIVE = ("all_gather", "reduce_scatter", "all_reduce")


def run() -> list[tuple[str, ...]]:
    """Rows: op, size, ms ours, ms JAX, ratio, and the same for a further collective of the step."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import threading

    import jax

    jax.config.update("jax_num_cpu_devices", RANKS)
    import torch_xla_cc

    results: dict[Any, Any] = {}
    torch_xla_cc.launch(measure, (threading.Barrier(RANKS), results), RANKS)
    rows = []
    for (name, size, count), (ours, jaxs) in results.items():
        if count != 1:
            continue
        row = [name, size, f"{ours * 1e3:.2f}", f"{jaxs * 1e3:.2f}", f"{ours / jaxs:.2f}"]
        many = results.get((name, size, MANY))
        if many:
            mine, other = (many[0] - ours) / (MANY - 1), (many[1] - jaxs) / (MANY - 1)
            row += [f"{mine * 1e3:.3f}", f"{other * 1e3:.3f}", f"{mine / other:.2f}"]
        else:
            row += ["-", "-", "-"]
        rows.append(tuple(row))
    return rows


if __name__ == "__main__":
    for line in run():
        print("  ".join(f"{cell:>12}" for cell in line))
