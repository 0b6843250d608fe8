"""Random numbers of DTensors on XLA devices.

torch's own way adds to the offset of CUDA's generator. XLA's state is one number, which the host
knows without asking the device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.distributed.tensor import Shard
from torch_xla.core import xla_model

from torch_xla_cc._runtime.private import DTensorSpec, dtensor_random

_FACTOR = 0x5851F42D4C957F2D  # of Knuth's generator: seeds that follow each other lie far apart
_MODULUS = 2**63


class Tracker(dtensor_random._RNGStateTracker):  # type: ignore[misc]
    """Gives replicas of one shard the same numbers, and different shards different ones.

    As for CUDA, all ranks of a mesh must have begun with the same seed.
    """

    def __init__(self) -> None:
        # torch's asks for the device, which may not be used before ranks are launched.
        self._use_distribute_region = True

    @contextlib.contextmanager
    def _distribute_region(
        self, spec: DTensorSpec, generator: torch.Generator | None = None
    ) -> Iterator[None]:
        if spec.mesh.device_type != "xla" or not self.distribute_region_enabled:
            yield
            return
        seed = xla_model.get_rng_state()
        xla_model.set_rng_state(_after(seed, 1 + _shard(spec)))
        try:
            yield
        finally:
            xla_model.set_rng_state(_after(seed, 0))  # the same on all ranks again


def _after(seed: int, number: int) -> int:
    return ((seed + number) * _FACTOR + 1) % _MODULUS


def _shard(spec: DTensorSpec) -> int:
    """The number of this rank's shard."""
    index = 0
    coordinate = spec.mesh.get_coordinate() or [0] * spec.mesh.ndim
    for dim, placement in enumerate(spec.placements):
        if isinstance(placement, Shard):
            index = index * spec.mesh.size(dim) + coordinate[dim]
    return index
