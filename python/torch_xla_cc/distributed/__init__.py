"""torch.distributed on XLA devices. Importing this registers the backend "xla_cc".

import torch_xla_cc.distributed
dist.init_process_group("xla_cc")                 # or "cpu:gloo,xla:xla_cc"
"""

from __future__ import annotations

import atexit
import os
import sys
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch_xla import runtime

from torch_xla_cc import _C
from torch_xla_cc._C import CollectiveMismatchError, CollectiveTimeoutError, RanksDisagree
from torch_xla_cc._ops.call_modes import in_graph, on_paper, one_buffer
from torch_xla_cc._processes import listening, waits, world
from torch_xla_cc._runtime import coalescing as _coalescing
from torch_xla_cc._runtime import environment, seeds
from torch_xla_cc._runtime import replicas as _replicas
from torch_xla_cc._runtime.device import shares_memory
from torch_xla_cc._runtime.private import backend_plugins, c10d_bindings
from torch_xla_cc._threads import progress
from torch_xla_cc._threads.worlds import this_rank
from torch_xla_cc.distributed import _autograd, _flight
from torch_xla_cc.distributed._end import leave_groups
from torch_xla_cc.distributed._flight import flight_recorder
from torch_xla_cc.distributed._groups import monitored_barrier, split_group
from torch_xla_cc.distributed._paper import paper_world
from torch_xla_cc.distributed._table import call_table

__all__ = [
    "BACKEND",
    "CollectiveMismatchError",
    "CollectiveTimeoutError",
    "call_table",
    "flight_recorder",
    "in_graph",
    "monitored_barrier",
    "one_buffer",
    "paper_world",
    "split_group",
]

BACKEND = "xla_cc"

_CHECKS = ("off", "fingerprint", "full")  # CheckMode in store_check.h


def _check_mode() -> int:
    """TORCH_XLA_CC_CHECK: how much of a call processes compare before it can block."""
    return _CHECKS.index(environment.choice("TORCH_XLA_CC_CHECK"))


def _calls(compares: bool) -> str:
    """TORCH_XLA_CC_CALLS: whether a call stays in the graph, or runs what is pending.

    With "agree" ranks that have to run the same programs settle among themselves what they run;
    "graph" is for those that read and step after the same calls.
    """
    value = environment.choice("TORCH_XLA_CC_CALLS")
    if value != "agree":
        return value
    if compares:
        return "graph"  # the device does it
    return "each" if runtime.is_spmd() else value


def _members(options: Any) -> list[int]:  # noqa: ANN401 (types of c10d)
    return list(options.global_ranks_in_group) or list(range(options.group_size))


def _group(options: Any, devices: list[int] | None = None) -> _C.RankGroup:  # noqa: ANN401
    """It and, if they are not numbered as ranks are, the devices of its members."""
    members = _members(options)
    if devices is None:
        world_size = dist.get_world_size() if dist.is_initialized() else options.group_size
    else:
        world_size = runtime.world_size()
    return _C.RankGroup(
        options.group_id, members, devices or members, world_size, options.group_rank
    )


def _milliseconds(options: Any) -> int:  # noqa: ANN401
    return int(options.timeout.total_seconds() * 1000)


def _store(options: Any) -> c10d_bindings.Store:  # noqa: ANN401
    """The group's part of the store, new each time that the group is made.

    A world may be made again in the store of one that has ended, by torchrun's env:// always: what
    that wrote must not be read.
    """
    size = options.group_size
    times = (options.store.add(f"xla_cc/{size}", 1) - 1) // size
    return c10d_bindings.PrefixStore(f"xla_cc/{size}/{times}", options.store)


def _meet(store: c10d_bindings.Store, rank: int, size: int, timeout: timedelta, calls: str) -> None:
    """Wait for all ranks of the group, which must be of one version: it says what they compare.

    And their `calls` must stay in the graph in one way.

    gloo connects them two by two, and a rank that is done and ends the group closes connections
    of which the other end is not ("connectFullMesh failed ... Connection closed by peer").
    """
    version = sys.modules["torch_xla_cc"].__version__  # which imports this module
    version += f" TORCH_XLA_CC_CALLS={calls}" if calls else ""
    if store.add(f"version/{version}", 1) == 1:
        store.set(f"versions/{store.add('versions', 1)}", f"rank {rank} {version}")
    if store.add("connected", 1) == size:
        count = store.add("versions", 0)
        several = [store.get(f"versions/{n + 1}").decode() for n in range(count)]
        store.set("all_connected", ", ".join(sorted(several)) if count > 1 else "")
    store.wait(["all_connected"], timeout)
    if versions := store.get("all_connected").decode():
        raise RanksDisagree(
            "init_process_group, new_group: the ranks of a group run several versions of "
            f"torch_xla_cc, or have several settings: {versions}. What ranks compare of their "
            "calls is of one version, and of one setting: install the same one, and set the same, "
            "everywhere"
        )


def _devices(store: c10d_bindings.Store, rank: int, size: int, timeout: timedelta) -> list[int]:
    """Those of the group's ranks, as torch_xla numbers them.

    It may do so otherwise than torch.distributed: on TPU by where the chips are, not by who
    torchrun starts first; and there are more where the world is a part of the job.
    """
    store.set(f"device/{rank}", str(runtime.global_ordinal()))
    names = [f"device/{other}" for other in range(size)]
    store.wait(names, timeout)  # the group's, and not the store's own
    said = store.multi_get(names) if store.has_extended_api() else map(store.get, names)
    found = [int(device) for device in said]
    for device in found:
        same = [other for other in range(size) if found[other] == device]
        if len(same) > 1:
            raise RuntimeError(
                f"init_process_group, new_group: ranks {same} of the group all use device {device} "
                f"of {runtime.world_size()}. Start one process for each device, and let each be a "
                "rank of its own"
            )
    return found


def _between_processes(options: Any, in_graph: bool) -> Any:  # noqa: ANN401
    _C.run_pending_before_waiting()  # for the others, to make the group
    rank, size, store = options.group_rank, options.group_size, _store(options)
    timeout = timedelta(milliseconds=_C.bounded_ms(_milliseconds(options)))
    is_pod = runtime.device_type() == "POD"
    # The pod compares what runs, unless it is to be as a TPU pod (docs/pod.md).
    compares = is_pod and os.environ.get("TORCH_XLA_CC_POD_PROGRAMS") != "same"
    calls = _calls(compares) if in_graph else "each"
    with waits.waiting():
        gloo = c10d_bindings.ProcessGroupGloo(
            c10d_bindings.PrefixStore("gloo", store), rank, size, timeout
        )
        _meet(store, rank, size, timeout, calls if in_graph else "")
        devices = None
        if in_graph:
            _replicas.require(size)
            if not runtime.is_spmd():
                devices = _devices(store, rank, size, timeout)
    agree = calls == "agree"
    group, milliseconds = _group(options, devices), _milliseconds(options)
    if calls != "each" and is_pod:
        progress.limit(sorted(devices or _members(options)), _C.bounded_ms(milliseconds))
    if calls != "each" and is_pod and not agree:
        progress.begin(pod=True)
    elif agree and not dist.is_initialized() and size == runtime.world_size():
        progress.begin(pod=False)
        listening.begin(options.group_id, store, rank, size, timeout)
    stay = calls != "each" and (not agree or world.current() is not None)
    messages = stay and compares and shares_memory()
    all_launch = agree and runtime.device_type() != "CUDA"
    return _C.process_backend(
        gloo,
        store,
        _check_mode(),
        in_graph,
        stay,
        compares,
        all_launch,
        messages,
        group,
        milliseconds,
    )


def _create(options: Any, _: Any = None) -> Any:  # noqa: ANN401
    """What torch.distributed calls on each member of a group."""
    backend = _created(options)
    if not on_paper():
        seeds.begin()  # from now on the runtime knows of the others
    return backend


def _created(options: Any) -> Any:  # noqa: ANN401
    if on_paper() and options.group_size > 1:
        return _C.paper_backend(_group(options), _milliseconds(options))
    if this_rank() is not None or options.group_size == 1:
        return _C.thread_backend(_group(options), _milliseconds(options))
    # On CPU each process has a client of its own, and XLA does not connect them.
    return _between_processes(options, in_graph=runtime.device_type() != "CPU")


_C.register_kernels()
_autograd.register()
_flight.start()
_coalescing.watch()
atexit.register(leave_groups)
if BACKEND.upper() not in backend_plugins:
    dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["xla"])
