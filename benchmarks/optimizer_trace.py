"""Steps of torch's optimizers, traced only: by torch_xla alone, and with torch_xla_cc imported."""

from __future__ import annotations

import statistics
import time

PARAMETERS = 40
SHAPE = (16, 16)
STEPS = 15
OPTIMIZERS = ("SGD, momentum", "Adam", "AdamW")


def _time(name: str) -> float:
    """Milliseconds to trace a step, in the median; a program of the device runs after each."""
    import torch
    import torch_xla

    device = torch_xla.device()
    parameters = [torch.ones(SHAPE, device=device, requires_grad=True) for _ in range(PARAMETERS)]
    for parameter in parameters:
        parameter.grad = torch.full(SHAPE, 0.5, device=device)
    options = {"momentum": 0.9} if name.startswith("SGD") else {}
    optimizer = getattr(torch.optim, name.split(",")[0])(parameters, lr=0.01, **options)
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        optimizer.step()
        times.append((time.perf_counter() - start) * 1e3)
        torch_xla.sync(wait=True)
    return statistics.median(times[STEPS // 3 :])


def run(name: str) -> list[tuple[str, ...]]:
    """A row. torch_xla's first: importing torch_xla_cc has torch check writes in C++."""
    theirs = _time(name)
    import torch_xla_cc  # noqa: F401

    ours = _time(name)
    return [(name, f"{theirs:.1f}", f"{ours:.1f}", f"{ours / theirs:.2f}")]


if __name__ == "__main__":
    import subprocess
    import sys

    for name in sys.argv[1:] or OPTIMIZERS:
        if sys.argv[1:]:
            print(run(name)[0])
        else:
            subprocess.run([sys.executable, __file__, name], check=True)
