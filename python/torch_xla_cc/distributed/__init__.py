"""torch.distributed on XLA devices. Importing this registers the backend "xla_cc".

import torch_xla_cc.distributed
dist.init_process_group("xla_cc")                 # or "cpu:gloo,xla:xla_cc"
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch_xla import runtime

from torch_xla_cc import _C
from torch_xla_cc._thread_worlds import this_rank

BACKEND = "xla_cc"


def _create(options: Any, _: Any = None) -> Any:  # noqa: ANN401 (types of c10d)
    """What torch.distributed calls on each member of a group."""
    members = list(options.global_ranks_in_group) or list(range(options.group_size))
    milliseconds = int(options.timeout.total_seconds() * 1000)
    world_size = dist.get_world_size() if dist.is_initialized() else options.group_size
    group = (options.group_id, members, world_size)
    if this_rank() is None and runtime.device_type() == "CPU":
        # Processes of which each has a client of its own: XLA does not connect them.
        store = c10d.PrefixStore("xla_cc", options.store)
        rank, size = options.group_rank, options.group_size
        gloo = c10d.ProcessGroupGloo(store, rank, size, options.timeout)
        return _C.host_backend(gloo, *group, rank, milliseconds)
    return _C.graph_backend(*group, options.group_rank, milliseconds)


@contextlib.contextmanager
def in_graph() -> Iterator[None]:
    """Leave the calls of this thread in the lazy graph until the step.

    Without it each call runs what is pending, as scripts expect: a rank may read what it got while
    others go on. Inside, all ranks of a group must read, and step, after the same calls.
    """
    before = _C.set_in_graph(True)
    try:
        yield
    finally:
        _C.set_in_graph(before)


_C.register_kernels()
if BACKEND.upper() not in dist.Backend._plugins:
    dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["xla"])
