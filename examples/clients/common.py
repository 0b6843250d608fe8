"""What the examples of clients share: how ranks start, what they print, and how they end.

Each example is one rank's program, for torchrun. `--backend=gloo` runs it without torch_xla, on
CPU tensors: the losses are to be the same.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist

# Ranks on CPU send everything through the host, and each of them would say so.
os.environ.setdefault("TORCH_XLA_CC_FALLBACK", "allow")


def _programs() -> tuple[int, int]:
    """How many the device has run for this process, and how many it has compiled."""
    from torch_xla.debug import metrics

    ran = metrics.metric_data("ExecuteTime")
    return (ran[0] if ran else 0), metrics.counter_value("UncachedCompile") or 0


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
        self._programs = (0, 0)  # before the last step
        torch.manual_seed(0)

    def steps(self) -> Iterator[int]:
        """The numbers of the steps."""
        for step in range(self.options.steps):
            self._began = time.time()
            self._programs = _programs() if self.is_xla else (0, 0)
            yield step

    def say(self, step: int, loss: float, rank: int = 0) -> None:
        """Print the loss of a step, once for all ranks."""
        if self.rank == rank % self.world_size:
            print(f"step {step}: loss {loss!r}", flush=True)

    def end(self) -> None:
        """Print the collectives and programs of the last step, and leave the world."""
        if self.is_xla and self.rank == 0:
            from torch_xla_cc.distributed import call_table, flight_recorder

            calls = [call for call in flight_recorder() if call["issued"] >= self._began]
            ran, compiled = (
                now - was for now, was in zip(_programs(), self._programs, strict=True)
            )
            print(call_table(calls), flush=True)
            print(f"programs run in the last step: {ran}, compiled: {compiled}", flush=True)
        dist.barrier()
        dist.destroy_process_group()
