"""Numbers that differ by the rank, for Python an int, and for tensors data of the graph.

Where a shard begins in a vocabulary is one: as a constant it would make a program of its own for
each rank.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from torch_xla_cc.distributed import own_part


class RankNumber(int):
    """group.rank() * by + more, of this rank."""

    group: dist.ProcessGroup
    by: int
    more: int

    def __new__(cls, group: dist.ProcessGroup, by: int, more: int = 0) -> RankNumber:
        """The number, and what it is made of."""
        number = super().__new__(cls, group.rank() * by + more)
        number.group, number.by, number.more = group, by, more
        return number

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """A copy, and what is saved, is a number: groups cannot be."""
        return int, (int(self),)

    def on(self, device: torch.device) -> torch.Tensor | int:
        """As s64[] there; as it is where programs are each rank's own anyway."""
        rank = own_part.rank(self.group, device)
        return int(self) if rank is None else rank * self.by + self.more


def as_data(args: Iterable[Any]) -> list[Any]:
    """A function's arguments, of which some are such numbers, as it is to get them."""
    args = list(args)
    device = next((x.device for x in args if isinstance(x, torch.Tensor)), None)
    if device is None:
        return args
    return [x.on(device) if type(x) is RankNumber else x for x in args]
