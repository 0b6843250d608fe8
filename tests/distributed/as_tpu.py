"""The backend that processes on TPU and GPU get, for ranks that are threads on the CPU.

Its calls are nodes where all ranks have the same, and go through the host beside the graph. CPU
devices of one process meet in XLA as TPU chips do, so all of it can run here. But ranks that are
threads do not agree on what they run, so each call runs what is pending. `run` is as that of
worlds.py.
"""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist
import worlds

import torch_xla_cc.distributed

BACKEND = "xla_cc_as_tpu"


def _create(options: Any, _: Any = None) -> Any:
    os.environ.setdefault("TORCH_XLA_CC_CALLS", "each")  # in a process of these ranks alone
    return torch_xla_cc.distributed._between_processes(options, in_graph=True)


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
