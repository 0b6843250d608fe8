"""What a step and a call cost on the host: medians, printed by rank 0."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch_xla
from torch_xla.core import xla_model as stock

import torch_xla_cc
from torch_xla_cc import xla_model as xm
from torch_xla_cc._runtime import replicas

STEPS = int(os.environ.get("TXCC_STEPS", "300"))
BLOCKS, CALLS = 40, 50


def _step(step: Callable[[], Any]) -> str:
    """Median and the tenth and ninetieth part of a hundred, in us."""
    for _ in range(5):
        step()
        torch_xla.sync(wait=True)
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        kept = step()
        torch_xla.sync(wait=True)
        times.append((time.perf_counter() - start) * 1e6)
        del kept
    cuts = statistics.quantiles(times, n=10)
    return f"{statistics.median(times):9.1f} us ({cuts[0]:.1f} to {cuts[-1]:.1f})"


def _call(call: Callable[[], Any]) -> float:
    torch_xla.sync(wait=True)
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS * 1e6


def work(rank: int) -> None:
    """All figures of this rank."""
    replicas.require(int(os.environ.get("WORLD_SIZE", "1")))
    world = torch_xla.runtime.world_size()
    device = torch_xla.device()
    small, large = (torch.randn(n, device=device) for n in (1 << 10, 1 << 18))
    torch_xla.sync(wait=True)
    steps: dict[str, Callable[[], Any]] = {
        "empty step: x + 1, 4 KiB": lambda: small + 1,
        "x + 1, 1 MiB": lambda: large + 1,
        "all_reduce of 4 KiB": lambda: xm.all_reduce("sum", small),
        "all_reduce of 1 MiB": lambda: xm.all_reduce("sum", large),
        "all_reduce of 1 MiB, torch_xla's": lambda: stock.all_reduce("sum", large),
        "20 all_reduces of 4 KiB": lambda: [xm.all_reduce("sum", small + i) for i in range(20)],
        "all_gather of 1 MiB": lambda: xm.all_gather(large),
        "all_gather of 1 MiB, torch_xla's": lambda: stock.all_gather(large),
    }
    for name, step in steps.items():
        figure = _step(step)
        if rank == 0:
            print(f"{world} ranks, step of {name}: {figure}", flush=True)
    x = torch.randn(64, 64, device=device)
    calls: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "all_reduce": (lambda: xm.all_reduce("sum", x), lambda: stock.all_reduce("sum", x)),
        "all_gather": (lambda: xm.all_gather(x), lambda: stock.all_gather(x)),
    }
    for name, (ours, theirs) in calls.items():
        _call(ours), _call(theirs)
        times = [(_call(ours), _call(theirs)) for _ in range(BLOCKS)]
        mine, other = (statistics.median(side) for side in zip(*times, strict=True))
        if rank == 0:
            print(
                f"{world} ranks, call of {name}: {mine:.2f} us, torch_xla's {other:.2f} us",
                flush=True,
            )
    torch_xla.sync(wait=True)


if __name__ == "__main__":
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        torch_xla_cc.launch(work)
    else:
        work(0)
