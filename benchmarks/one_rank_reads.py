"""A loop that one rank alone reads, as a validation whose loss rank 0 prints.

    PYTHONPATH=python python benchmarks/one_rank_reads.py [reads]

A small perceptron and one all_reduce an iteration, on a pod of two ranks: with calls that stay in
the graph until ranks agree on what they run, and with a run at each call. Seconds of the loop on
rank 0 with the step at its end, programs that it compiled, and iterations a second of its last
half.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist


def loop(_rank: int, reads: int) -> tuple[float, int, float]:
    """On one rank."""
    import torch_xla
    import torch_xla.debug.metrics as metrics

    import torch_xla_cc.distributed  # noqa: F401, the backend

    dist.init_process_group("xla_cc")
    rank, device = dist.get_rank(), torch_xla.device()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
    model = model.to(device)
    torch_xla.sync()
    before = metrics.counter_value("UncachedCompile") or 0
    times = [time.perf_counter()]
    losses = []
    with torch.no_grad():
        for step in range(reads):
            generator = torch.Generator().manual_seed(2 * step + rank)
            loss = model(torch.randn(16, 32, generator=generator).to(device)).square().mean()
            dist.all_reduce(loss)
            if rank == 0:
                losses.append(loss.item())
            times.append(time.perf_counter())
    torch_xla.sync()
    dist.barrier()
    whole = time.perf_counter() - times[0]
    half = len(times) // 2
    compiled = (metrics.counter_value("UncachedCompile") or 0) - before
    dist.destroy_process_group()
    return whole, compiled, (len(times) - 1 - half) / (times[-1] - times[half])


def main() -> None:
    """Print a line for each setting."""
    import torch_xla_cc

    for reads in [int(x) for x in sys.argv[1:]] or [30, 100, 300]:
        for calls in ("each", "agree"):
            os.environ["TORCH_XLA_CC_CALLS"] = calls
            whole, compiled, rate = torch_xla_cc.launch(loop, (reads,), nprocs=2, pod=True)[0]
            print(
                f"{reads} reads, {calls}: {whole:.2f} s, {compiled} programs compiled, "
                f"at the end {rate:.0f} a second",
                flush=True,
            )


if __name__ == "__main__":
    main()
