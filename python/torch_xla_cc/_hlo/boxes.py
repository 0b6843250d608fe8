"""Groups as boxes of chips, and what each axis of a torus carries of their collectives.

In a box a collective goes in one stage for each axis, one axis after the other, and its data may be
cut into parts that take the axes in different orders. lowering/model/torus.h has the same model.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeAlias

from .instruction import Groups
from .topology import Axis, Topology

# What the busiest link of each axis carries.
Load: TypeAlias = tuple[Fraction, ...]
_Line = tuple[int, ...]  # where the members of a group stand along an axis, ascending


def sides(groups: Groups, topology: Topology) -> tuple[int, ...] | None:
    """Members of each group along each axis, if all groups are boxes of one form; else None."""
    found = set()
    for group in groups:
        sizes = tuple(len(set(places)) for places in _columns(group, topology))
        if math.prod(sizes) != len(set(group)):
            return None
        found.add(sizes)
    return found.pop() if len(found) == 1 else None


def passed_on(groups: Groups, topology: Topology, sizes: tuple[int, ...]) -> list[Load]:
    """Of an all_gather of one byte a rank, or a reduce_scatter to one, for each order of the axes:
    what is passed on along an axis is all that came together before."""
    stages = [axis for axis, size in enumerate(sizes) if size > 1]
    alone = {axis: _busiest(groups, topology, axis, _gathered) for axis in stages}
    found = set()
    for order in itertools.permutations(stages):
        load = [Fraction(0)] * len(sizes)
        block = 1
        for axis in order:
            load[axis] = alone[axis] * block
            block *= sizes[axis]
        found.add(tuple(load))
    return sorted(found)


def exchanged(groups: Groups, topology: Topology, sizes: tuple[int, ...]) -> Load:
    """Of an all_to_all of one byte from each to each."""
    members = math.prod(sizes)
    return tuple(
        _busiest(groups, topology, axis, _crossing) * members / size
        for axis, size in enumerate(sizes)
    )


def broadcast(groups: Groups, topology: Topology, sizes: tuple[int, ...]) -> Load:
    """Of a collective_broadcast of one byte: the same over each link that it takes."""
    return tuple(
        _busiest(groups, topology, axis, _passing) if size > 1 else Fraction(0)
        for axis, size in enumerate(sizes)
    )


def ring_hops(size: int) -> Fraction:
    """Over a link of a ring, if each gives one byte to each: to those at distance 1, 2, ... either
    way, over as many links; to the one opposite half either way."""
    return sum(
        (
            Fraction(distance, 2 if 2 * distance == size else 1)
            for distance in range(1, size // 2 + 1)
        ),
        Fraction(0),
    )


def _columns(group: Sequence[int], topology: Topology) -> list[tuple[int, ...]]:
    """The coordinates of its members along each axis."""
    return list(zip(*map(topology.coordinates, group), strict=True))


def _lines(groups: Groups, topology: Topology, axis: int) -> set[tuple[_Line, ...]]:
    """Along each line of chips, where the members of each group stand that has some there."""
    found: dict[tuple[int, ...], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, group in enumerate(groups):
        for rank in group:
            at = topology.coordinates(rank)
            found[at[:axis] + at[axis + 1 :]][number].append(at[axis])
    return {tuple(tuple(sorted(line)) for line in some.values()) for some in found.values()}


def _goes_around(axis: Axis, line: _Line) -> bool:
    """Whether they stand all around an axis that wraps, in equal steps."""
    step, rest = divmod(axis.size, len(line))
    return axis.wraps and not rest and line == tuple(range(line[0], axis.size, step))[: len(line)]


# What members below a link and above it send over it, upwards; downwards the other way round.
def _gathered(below: int, above: int) -> int:
    return below if above else 0


def _crossing(below: int, above: int) -> int:
    return below * above


def _passing(below: int, above: int) -> int:
    return 1 if below and above else 0


# The same over each link of a ring.
_AROUND: dict[Callable[[int, int], int], Callable[[int], Fraction]] = {
    _gathered: lambda size: Fraction(size - 1, 2),
    _crossing: ring_hops,
    _passing: lambda size: Fraction(1, 2),
}


def _busiest(
    groups: Groups, topology: Topology, number: int, count: Callable[[int, int], int]
) -> Fraction:
    """Over the busiest link along an axis."""
    axis = topology.axes[number]
    most = Fraction(0)
    for line in _lines(groups, topology, number):
        for link in range(axis.size - 1):
            up = down = Fraction(0)
            for members in line:
                if len(members) > 1 and _goes_around(axis, members):
                    up += _AROUND[count](len(members))
                    down += _AROUND[count](len(members))
                else:
                    below = bisect(members, link)
                    up += count(below, len(members) - below)
                    down += count(len(members) - below, below)
            most = max(most, up, down)
    return most
