"""Compiles of one program on N threads, over ten steps."""

from __future__ import annotations

import sys

STEPS = 10


def step_ten_times(rank: int) -> int:
    """Ten steps of one program; the number of compiles they took, on rank 0."""
    import torch
    import torch_xla
    from torch_xla.debug import metrics

    from torch_xla_cc import xla_model as xm

    def compiles() -> int:
        return int(metrics.counter_value("UncachedCompile") or 0)

    x = torch.randn(64, 64).to(torch_xla.device())
    before = compiles()
    for _ in range(STEPS):
        y = xm.all_reduce(xm.REDUCE_SUM, torch.sin(x @ x))
        z = xm.all_gather(y[:8])
        torch_xla.sync(wait=True)
        del y, z
    return compiles() - before


def run(ranks: int) -> int:
    """How often the program was compiled by `ranks` ranks in this process."""
    import torch_xla_cc

    return max(torch_xla_cc.launch(step_ten_times, (), ranks))


if __name__ == "__main__":
    print(run(int(sys.argv[1])))
