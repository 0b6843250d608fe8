"""A step of x + 1 on four CPU devices, 4 KiB each: what a step costs before any collective."""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

RANKS = 4
ELEMENTS = 1 << 10
ROUNDS = 9
STEPS = 200


def _rounds(step: Callable[[], None], barrier: threading.Barrier | None) -> float:
    """The median of the rounds, in us a step."""
    times = []
    for _ in range(ROUNDS):
        if barrier:
            barrier.wait()
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        times.append((time.perf_counter() - start) / STEPS * 1e6)
    return statistics.median(times)


def _on_rank(rank: int, barrier: threading.Barrier, out: dict[int, float]) -> None:
    import torch
    import torch_xla

    x = torch.ones(ELEMENTS, device=torch_xla.device(rank))
    torch_xla.sync(wait=True)

    def step() -> None:
        y = x + 1
        torch_xla.sync(wait=True)
        del y

    out[rank] = _rounds(step, barrier)


def torch_xla_alone(barrier: threading.Barrier, out: dict[int, float]) -> None:
    """Threads of torch_xla without torch_xla_cc, with the settings that launch gives it."""
    threads = str(RANKS + (os.cpu_count() or 1))
    os.environ |= {
        "PJRT_DEVICE": "CPU",
        "CPU_NUM_DEVICES": str(RANKS),
        "XLA_THREAD_POOL_SIZE": threads,
        "PJRT_NPROC": threads,
        "PJRT_CPU_ASYNC_CLIENT": "false",
    }
    import torch_xla

    def run(rank: int) -> None:
        torch_xla._XLAC._xla_set_default_device(f"xla:{rank}")
        _on_rank(rank, barrier, out)

    ranks = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()


def launched(barrier: threading.Barrier, out: dict[int, float]) -> None:
    """The same in torch_xla_cc.launch."""
    import torch_xla_cc

    torch_xla_cc.launch(_on_rank, (barrier, out), RANKS)


def jax_shard_map(_: threading.Barrier, out: dict[int, float]) -> None:
    """JAX."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    from against_jax import NONE, JaxSide

    jax.config.update("jax_num_cpu_devices", RANKS)
    step = JaxSide(ELEMENTS).step(NONE, 1)
    step()
    out[0] = _rounds(step, None)


SIDES: dict[str, Callable[[threading.Barrier, dict[int, float]], Any]] = {
    "torch_xla alone": torch_xla_alone,
    "torch_xla under torch_xla_cc.launch": launched,
    "jax.shard_map": jax_shard_map,
}


def run(side: str) -> list[tuple[str, ...]]:
    """One row: the side, us a step. To be run in a process of its own."""
    out: dict[int, float] = {}
    SIDES[side](threading.Barrier(RANKS), out)
    return [(side, f"{max(out.values()):.0f}")]


if __name__ == "__main__":
    print(run(sys.argv[1]))
