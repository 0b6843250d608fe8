"""What links ranks, as far as the name of a target says it."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from typing import Literal

# Published, as in lowering/topology.cc: an axis wraps if its size is a multiple of that; of a cube,
# if all of them are.
_WRAPS_AT = {"v4": 4, "v5p": 4, "v5e": 16, "v6e": 16}
_TPU = re.compile(r"(?:spmd:)?tpu:(\w+):(\d{1,6}(?:x\d{1,6}){0,2})")
_GPU = re.compile(r"(?:spmd:)?gpu:\w+?x(\d{1,6})")


@dataclass(frozen=True)
class Axis:
    """A dimension of a torus; of a mesh, where it does not wrap."""

    size: int  # chips
    wraps: bool  # the last is linked to the first


@dataclass(frozen=True)
class Topology:
    """A link is one direction of a wire.

    ring: each group is one, in its order, and so are all ranks for pairs. Nothing is known.
    switch: a rank has one wire to it, and reaches all others.
    torus: a rank has a wire to each neighbour along each axis.
    """

    kind: Literal["ring", "switch", "torus"]
    axes: tuple[Axis, ...]  # x, y, z; of a ring one, of a switch none

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Ranks are counted along x first."""
        at = []
        for axis in self.axes:
            rank, place = divmod(rank, axis.size)
            at.append(place)
        return tuple(at)


@functools.lru_cache
def topology_of(target: str, world: int) -> Topology:
    """That of a target such as "tpu:v5e:4x8" or "gpu:h100x8"; a ring for others."""
    if (tpu := _TPU.fullmatch(target)) and tpu[1] in _WRAPS_AT:
        sizes = [int(size) for size in tpu[2].split("x")]
        if math.prod(sizes) == world:
            at = _WRAPS_AT[tpu[1]]
            whole = len(sizes) < 3 or all(size % at == 0 for size in sizes)
            return Topology("torus", tuple(Axis(size, whole and size % at == 0) for size in sizes))
    if (gpu := _GPU.fullmatch(target)) and int(gpu[1]) == world:
        return Topology("switch", ())
    return Topology("ring", (Axis(world, True),))
