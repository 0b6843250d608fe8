"""What device this process runs on, asked of torch_xla once."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch_xla import runtime

from torch_xla_cc._runtime.environment import number
from torch_xla_cc._runtime.private import XLAC


def world_size() -> int:
    """The number of ranks: devices of all processes that take part."""
    # torch_xla counts one rank until replication is set up, which launch and spawn do.
    if XLAC._xla_get_replication_devices_count() == 0:
        return 1
    return int(runtime.global_device_count())


# What libtpu calls a generation.
_GENERATIONS = {
    "TPU v4": "v4",
    "TPU v5": "v5p",
    "TPU v5p": "v5p",
    "TPU v5 lite": "v5e",
    "TPU v5e": "v5e",
    "TPU v6 lite": "v6e",
    "TPU v6e": "v6e",
}
# Along how many axes its chips are linked.
_AXES = {"v4": 3, "v5p": 3, "v5e": 2, "v6e": 2}


def running_target() -> tuple[str, int, list[int]]:
    """The target of lowerings on the running device; called by the extension on first use.

    Its name, the number of ranks and, if that is not chip r for rank r, the chip of each.
    """
    kind = (runtime.device_type() or "cpu").lower()
    spmd = runtime.is_spmd()
    ranks = int(runtime.global_runtime_device_count()) if spmd else world_size()
    chips: list[int] = []
    if kind == "tpu":
        devices = runtime.global_runtime_device_attributes()
        kind, chips = tpu(XLAC._xla_device_kind("xla:0"), devices, ranks)
    if spmd:
        return f"spmd:{kind}", ranks, chips
    processes = number("WORLD_SIZE", 1)
    if kind == "cpu" and ranks == 1 and processes > 1:
        raise RuntimeError(
            f"this is one of {processes} CPU processes (WORLD_SIZE={processes}), and torch_xla has "
            "no collectives between CPU processes: each would take itself for the whole world. "
            "Set PJRT_DEVICE=POD to keep these processes, call torch.distributed with the xla_cc "
            "backend, or start ranks as threads: torch_xla_cc.launch(fn, args, nprocs)"
        )
    if kind == "cpu" and ranks == 1:
        # Several devices are as many ranks, of which this thread is one only within a launch.
        ranks = int(runtime.global_device_count())
    return kind, ranks, chips


@functools.cache
def shares_memory() -> bool:
    """Whether this is a rank of a pod whose device processes meet in memory (docs/pod.md)."""
    if runtime.device_type() != "POD":
        return False
    attributes = runtime.global_runtime_device_attributes()
    return bool(attributes) and attributes[0].get("collectives") == "memory"


def tpu(
    device_kind: str, devices: Sequence[Mapping[str, Any]], ranks: int
) -> tuple[str, list[int]]:
    """The name of a target, "tpu:v5e:4x8", and the chips of its ranks if they are in another order.

    From what libtpu tells of all devices. Where these are no full box of chips with a rank on each,
    the name is that of the generation.
    """
    generation = _GENERATIONS.get(device_kind)
    if generation is None:
        return "tpu", []
    # torch_xla's ranks are the devices by the number in their name.
    axes_told = {len(device.get("coords") or ()) for device in devices}
    if len(axes_told) != 1 or 0 in axes_told:
        return f"tpu:{generation}", []  # that it is not told costs speed only
    devices = sorted(devices, key=lambda device: int(device["name"].rpartition(":")[2]))
    axes = list(zip(*(device["coords"] for device in devices), strict=True))
    first = [min(axis) for axis in axes]
    dims = [max(axis) - least + 1 for axis, least in zip(axes, first, strict=True)]
    chips = []
    for device in devices:
        chip = 0
        for at, least, size in zip(
            reversed(device["coords"]), reversed(first), reversed(dims), strict=True
        ):
            chip = chip * size + at - least
        chips.append(chip)
    if sorted(chips) != list(range(ranks)) or math.prod(dims) != ranks:
        return f"tpu:{generation}", []
    shape = "x".join(str(size) for size in dims[: _AXES[generation]])
    return f"tpu:{generation}:{shape}", [] if chips == sorted(chips) else chips
