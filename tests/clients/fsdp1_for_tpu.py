"""Steps of FSDP1 for eight TPU chips, on a machine that has none: a dry run."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections import Counter
from collections.abc import Iterator

import torch
import torch_xla
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

import torch_xla_cc
from torch_xla_cc._inspect import trace
from torch_xla_cc.adapters import fsdp1
from torch_xla_cc.distributed import paper_world

TARGET, CHIPS = "tpu:v5e:2x4", 8


class Block(nn.Module):
    """Of a size that eight do not divide."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(128, 300), nn.Linear(300, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


@dataclasses.dataclass
class Training:
    """A model of a rank, and its step."""

    strategy: str
    orig: bool

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.x = torch.ones(16, 128, device=torch_xla.device())
        self.model = FullyShardedDataParallel(
            nn.Sequential(Block(), Block()).to(self.x.device),
            sharding_strategy=ShardingStrategy[self.strategy],
            auto_wrap_policy=ModuleWrapPolicy([Block]),
            device_id=self.x.device,
            use_orig_params=self.orig,
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self) -> list[torch.Tensor]:
        self.model(self.x).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return [x.detach() for x in self.model.parameters()]


@contextlib.contextmanager
def in_world(rank: int, strategy: str, orig: bool) -> Iterator[Training]:
    """One of a rank of eight, and the end of its world."""
    torch_xla_cc.install()
    with fsdp1.installed(), paper_world(rank, CHIPS):
        yield Training(strategy, orig)


def module(rank: int, strategy: str, orig: bool) -> bytes:
    """What a rank would have compiled."""
    with in_world(rank, strategy, orig) as training:
        found = trace.of_call("step", training.step, TARGET, None).module
        del training
        gc.collect()  # FSDP1's modules are in cycles, and hold what nobody has computed
        return found


def calls_and_compiled(strategy: str) -> tuple[dict[str, int], dict[str, int]]:
    """Collectives of a step of rank 5 by opcode, and those that the TPU's compiler left of them."""
    with in_world(5, strategy, False) as training:
        report = torch_xla_cc.inspect(training.step, target=TARGET)
        del training
        gc.collect()
    called = Counter(opcode for row in report.rows for opcode in row.before)
    return dict(called), {name: n for name, n in report.counts.items() if name in called}
