"""A world on paper: one rank of many that do not exist, to see what it would run."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator

import torch.distributed as dist

from torch_xla_cc._ops.call_modes import world_on_paper
from torch_xla_cc._runtime.private import c10d_bindings


class _Store(c10d_bindings.Store):  # type: ignore[misc]
    """Where groups are made: whoever is waited for has come."""

    def __init__(self, world_size: int) -> None:
        super().__init__()
        self._world_size = world_size

    def add(self, key: str, amount: int) -> int:
        """How many ranks have come to the place that torch.distributed counts here."""
        return self._world_size

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Nothing waits."""


@contextlib.contextmanager
def paper_world(rank: int, world_size: int) -> Iterator[None]:
    """torch.distributed with the backend xla_cc, in which this process is a rank and has no peers.

    Models that take their part of the weights by rank, and their groups from torch.distributed, can
    be built in it. What they call is traced by `torch_xla_cc.inspect` with a target of as many
    devices; outside of that, a collective is a ValueError. So are all_to_alls with split sizes, of
    which a rank knows its own only.
    """
    if not isinstance(world_size, int) or world_size < 1:
        raise ValueError(f"paper_world: world_size = {world_size!r}, but it must be an int from 1")
    if not isinstance(rank, int) or not 0 <= rank < world_size:
        raise ValueError(
            f"paper_world: rank = {rank!r}, but it must be an int from 0 to {world_size - 1}"
        )
    if dist.is_initialized():
        raise RuntimeError("paper_world: torch.distributed has a world already. Destroy it first")
    with world_on_paper():
        dist.init_process_group(
            "xla_cc", store=_Store(world_size), rank=rank, world_size=world_size
        )
        try:
            yield
        finally:
            dist.destroy_process_group()
