"""The backend that processes on TPU and GPU get, for ranks that are threads on the CPU.

Its calls are nodes where all ranks have the same, and go through the host beside the graph. CPU
devices of one process meet in XLA as TPU chips do, so all of it can run here. `run` is as that of
worlds.py.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
import worlds
from torch._C import _distributed_c10d as c10d

from torch_xla_cc import _C

BACKEND = "xla_cc_as_tpu"


def _create(options: Any, _: Any = None) -> Any:
    rank, size = options.group_rank, options.group_size
    members = list(options.global_ranks_in_group) or list(range(size))
    world_size = dist.get_world_size() if dist.is_initialized() else size
    group = _C.Group(options.group_id, members, world_size, rank)
    store = c10d.PrefixStore(BACKEND, options.store)
    gloo = c10d.ProcessGroupGloo(c10d.PrefixStore("gloo", store), rank, size, options.timeout)
    milliseconds = int(options.timeout.total_seconds() * 1000)
    return _C.process_backend(gloo, store, 1, True, group, milliseconds)


def init() -> None:
    """The world of this launch, with that backend for XLA devices."""
    if BACKEND.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["xla"])
    if not dist.is_initialized():
        dist.init_process_group(f"cpu:gloo,xla:{BACKEND}")


def _started(rank: int, function: Any, *args: Any) -> Any:
    init()
    return function(rank, *args)


def run(size: int, function: Any, *args: Any, timeout_s: float = 60.0) -> list[Any]:
    """`function(rank, *args)` on every rank, in a world with that backend."""
    return worlds.run(size, _started, function, *args, timeout_s=timeout_s)
