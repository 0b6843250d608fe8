"""What the examples of clients share: how ranks start, what they print, and how they end.

Each example is one rank's program, for torchrun. `--backend=gloo` runs it without torch_xla, on
CPU tensors: the losses are to be the same.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist

# Ranks on CPU send everything through the host, and each of them would say so.
os.environ.setdefault("TORCH_XLA_CC_FALLBACK", "allow")


def _programs() -> tuple[int, int]:
    """How many this process has handed to its device, and how many of them it had to compile.

    The metric ExecuteTime counts them on another thread, and so some only in the next step.
    """
    from torch_xla.debug import metrics

    compiled = metrics.counter_value("UncachedCompile") or 0
    return compiled + (metrics.counter_value("CachedCompile") or 0), compiled


class Run:
    """A training run of this rank: its device, its steps, the losses that it prints."""

    def __init__(self, description: str, **defaults: int) -> None:
        """Join the world. `defaults` are more options that are numbers, such as `steps=30`."""
        parser = argparse.ArgumentParser(description=description.splitlines()[0])
        parser.add_argument("--backend", choices=("xla_cc", "gloo"), default="xla_cc")
        for name, value in {"steps": 30, **defaults}.items():
            parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
        self.options = parser.parse_args()
        self.is_xla = self.options.backend == "xla_cc"
        if self.is_xla:
            import torch_xla

            import torch_xla_cc.distributed
            from torch_xla_cc.adapters import optimizers

            torch_xla_cc.install()
            optimizers.install()
            self.device = torch_xla.device()
            dist.init_process_group("cpu:gloo,xla:xla_cc")
        else:
            self.device = torch.device("cpu")
            dist.init_process_group("gloo")
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self._began = 0.0
        self._programs: list[tuple[int, int]] = []  # before each step
        torch.manual_seed(0)

    def steps(self) -> Iterator[int]:
        """The numbers of the steps."""
        for step in range(self.options.steps):
            self._began = time.time()
            if self.is_xla:
                self._programs.append(_programs())
            yield step

    def say(self, step: int, loss: float, rank: int = 0) -> None:
        """Print the loss of a step, once for all ranks."""
        if self.rank == rank % self.world_size:
            print(f"step {step}: loss {loss!r}", flush=True)

    def end(self) -> None:
        """Print the collectives of the last step, the programs of some, and leave the world."""
        if self.is_xla and self.rank == 0:
            from torch_xla_cc.distributed import call_table, flight_recorder

            calls = [call for call in flight_recorder() if call["issued"] >= self._began]
            print(call_table(calls), flush=True)
            if self._programs:
                print(f"programs run (compiled) in the last steps: {self._last()}", flush=True)
        dist.barrier()
        dist.destroy_process_group()

    def _last(self) -> str:
        """Of each of the last half: one step may run early, for another rank, what is pending."""
        half = [*self._programs[len(self._programs) // 2 :], _programs()]
        return ", ".join(f"{b[0] - a[0]} ({b[1] - a[1]})" for a, b in itertools.pairwise(half))
