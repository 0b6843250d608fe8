"""What device this process runs on, asked of torch_xla once."""

from __future__ import annotations

import os

import torch
from torch_xla import runtime

from torch_xla_cc._runtime.private import XLAC


def world_size() -> int:
    """The number of ranks: devices of all processes that take part."""
    # torch_xla counts one rank until replication is set up, which launch and spawn do.
    if XLAC._xla_get_replication_devices_count() == 0:
        return 1
    return int(runtime.global_device_count())


def running_target() -> tuple[str, int]:
    """The target of lowerings on the running device; called by the extension on first use."""
    kind = runtime.device_type() or "cpu"
    if runtime.is_spmd():
        return f"spmd:{kind.lower()}", int(runtime.global_runtime_device_count())
    ranks = world_size()
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if kind == "CPU" and ranks == 1 and processes > 1:
        raise RuntimeError(
            f"this is one of {processes} CPU processes (WORLD_SIZE={processes}), and torch_xla has "
            "no collectives between CPU processes: each would take itself for the whole world. "
            "Start one process with a thread per device: torch_xla_cc.launch(fn, args, nprocs)"
        )
    if kind == "CPU" and ranks == 1:
        # Several devices are as many ranks, of which this thread is one only within a launch.
        ranks = int(runtime.global_device_count())
    return kind.lower(), ranks


def first_token(rank: int) -> torch.Tensor:
    """The start of a rank's chain of collectives (see docs/spec.md, Ordering).

    Data from the host, so that the first step's program has it as a parameter as all later ones do.
    """
    return torch.zeros(1, dtype=torch.int32).to(torch.device("xla", rank))
