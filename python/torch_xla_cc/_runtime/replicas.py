"""How many ranks torch_xla compiles a program for, where ranks are processes."""

from __future__ import annotations

import os

from torch_xla_cc._runtime.private import pjrt, runtime


def require(size: int, who: str = "init_process_group") -> None:
    """Have torch_xla compile for all ranks, of which there are `size` or more.

    Its own `xla://` does that. After env://, as scripts for NCCL have it, it would go on with a
    world of one, for which no program has a collective of several ranks.
    """
    if runtime.is_spmd() or runtime.world_size() >= size:
        return
    local_size = os.environ.get("LOCAL_WORLD_SIZE", str(size))
    pjrt.initialize_multiprocess(int(os.environ.get("LOCAL_RANK", "0")), int(local_size))
    runtime._WORLD_SIZE = runtime._ORDINAL = None  # kept since they were first asked for
    runtime._init_world_size_ordinal()
    if runtime.world_size() < size:
        raise RuntimeError(
            f"{who}: {size} ranks, but torch_xla's runtime has "
            f"{runtime.world_size()} device(s) of this job (PJRT_DEVICE="
            f"{os.environ.get('PJRT_DEVICE')}). Call {who} before any use of an XLA "
            "device; on TPU, start one process for each chip"
        )
