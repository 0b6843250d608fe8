"""What links carry: of one collective, and of all of a program together.

A collective in groups that are boxes of chips goes in one stage for each axis of a torus; in other
groups along a ring, the ranks of a group in its order. all_to_all and pairs take the shorter way,
along x first. See docs/inspect.md, "Bytes".
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import TypeAlias

from . import boxes
from .boxes import Load
from .instruction import Groups
from .topology import Topology
from .traffic import BY_PAIRS, Transfer, flows, participants, share

_Link: TypeAlias = tuple[int, tuple[int, ...], int]  # axis, chip, direction
_Carried: TypeAlias = dict[_Link, Fraction]
_Part: TypeAlias = tuple[Fraction, Sequence[Load]]  # how much; loads in each order of the axes
_GOLDEN = (5**0.5 - 1) / 2
_STEPS = 64


def busiest(collectives: Iterable[Transfer], topology: Topology, world: int) -> int:
    """The bytes over the link that carries most, in one direction, of all of these together.

    Those over several axes are cut so that this is the least.
    """
    if topology.kind == "switch":
        return _busiest_port(collectives, world)
    routed: _Carried = defaultdict(Fraction)
    amounts: dict[Sequence[Load], Fraction] = defaultdict(Fraction)
    for one in collectives:
        if one.opcode in BY_PAIRS:
            _route(flows(one, world), topology, routed)
        else:
            loads = _loads(one.opcode, participants(one, world), topology)
            amounts[loads] += one.operand_bytes
    parts: list[_Part] = [(amount, loads) for loads, amount in amounts.items()]
    if routed:
        parts.append((Fraction(1), [_of_axes(routed, topology)]))
    return round(least(parts))


def _busiest_port(collectives: Iterable[Transfer], world: int) -> int:
    """Of a switch: what the wire of a rank carries to it, or from it."""
    into: dict[int, Fraction] = defaultdict(Fraction)
    out: dict[int, Fraction] = defaultdict(Fraction)
    for one in collectives:
        if one.opcode in BY_PAIRS:
            for source, target, amount in flows(one, world):
                out[source] += amount
                into[target] += amount
            continue
        for group in participants(one, world):
            amount = one.operand_bytes * _to_each(one.opcode, len(group))
            for rank in group:  # what it gets it passes on, but for what is its own
                into[rank] += amount
                out[rank] += amount
    return round(max([*into.values(), *out.values()], default=Fraction(0)))


def _to_each(opcode: str, size: int) -> Fraction:
    """Of each byte of the operand, what comes to a rank of a group of that size."""
    others = min(size - 1, 1) if opcode == "collective-broadcast" else size - 1
    return share(opcode, size) * others


@functools.lru_cache(maxsize=4096)
def _loads(opcode: str, groups: Groups, topology: Topology) -> tuple[Load, ...]:
    """What the busiest link of each axis carries of each byte of the operand, for each order of the
    axes."""
    groups = tuple(group for group in groups if len(group) > 1)
    exchanges = opcode in ("all-to-all", "ragged-all-to-all")
    if not groups:
        return ()
    if topology.kind == "ring":
        sizes = {len(group) for group in groups}
        if exchanges:
            return ((max(share(opcode, size) * boxes.ring_hops(size) for size in sizes),),)
        return ((max(_to_each(opcode, size) for size in sizes) / 2,),)
    sides = boxes.sides(groups, topology)
    if sides is None:
        carried: _Carried = defaultdict(Fraction)
        for group in groups:
            _route(_in_group(opcode, group), topology, carried)
        return (_of_axes(carried, topology),)
    if exchanges:
        return _times(share(opcode, len(groups[0])), [boxes.exchanged(groups, topology, sides)])
    if opcode == "collective-broadcast":
        return (boxes.broadcast(groups, topology, sides),)
    return _times(share(opcode, len(groups[0])), boxes.passed_on(groups, topology, sides))


def _times(factor: Fraction, loads: Iterable[Load]) -> tuple[Load, ...]:
    return tuple(tuple(factor * part for part in load) for load in loads)


def _in_group(opcode: str, group: Sequence[int]) -> Iterator[tuple[int, int, Fraction]]:
    """What goes from rank to rank: to each other one, or around a ring, half of it either way."""
    if opcode in ("all-to-all", "ragged-all-to-all"):
        amount = share(opcode, len(group))
        yield from ((a, b, amount) for a in group for b in group if a != b)
        return
    amount = _to_each(opcode, len(group)) / 2
    for a, b in zip(group, (*group[1:], group[0]), strict=True):
        yield a, b, amount
        yield b, a, amount


def _route(
    flows: Iterable[tuple[int, int, Fraction]], topology: Topology, carried: _Carried
) -> None:
    """Adds what each link carries: along x first, the shorter way, or half of it either way."""
    for source, target, amount in flows:
        at, to = list(topology.coordinates(source)), topology.coordinates(target)
        for number, axis in enumerate(topology.axes):
            ahead, back = (
                (to[number] - at[number]) % axis.size,
                (at[number] - to[number]) % axis.size,
            )
            ways = [1] if to[number] > at[number] else [-1]
            if axis.wraps:
                ways = [way for way, far in ((1, ahead), (-1, back)) if far == min(ahead, back)]
            for way in ways if ahead else ():
                place = at[number]
                while place != to[number]:
                    chip = (*at[:number], place, *at[number + 1 :])
                    carried[number, chip, way] += amount / len(ways)
                    place = (place + way) % axis.size
            at[number] = to[number]


def _of_axes(carried: _Carried, topology: Topology) -> Load:
    load = [Fraction(0)] * len(topology.axes)
    for (axis, _, _), amount in carried.items():
        load[axis] = max(load[axis], amount)
    return tuple(load)


def least(parts: Iterable[_Part]) -> float:
    """What the busiest axis carries of these if all are cut, into parts that take the axes in
    different orders, so that it is the least.

    That is a linear program, and this is its dual: whatever the weights of the axes, it is no less
    than if each took the order that weighs least; and with the best weights it is that.
    """
    loads = [
        [tuple(float(amount * part) for part in load) for load in orders]
        for amount, orders in parts
        if amount and orders
    ]

    def weighed(*weights: float) -> float:
        return sum(
            min(sum(w * part for w, part in zip(weights, load, strict=True)) for load in orders)
            for orders in loads
        )

    axes = max((len(load) for orders in loads for load in orders), default=0)
    if axes < 2:
        return weighed(1.0)
    if axes == 2:
        return _highest(lambda a: weighed(a, 1 - a))
    return _highest(lambda a: _highest(lambda b: weighed(a, (1 - a) * b, (1 - a) * (1 - b))))


def _highest(of: Callable[[float], float]) -> float:
    """Of a concave function from 0 to 1."""
    low, high = 0.0, 1.0
    a, b = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_a, at_b = of(a), of(b)
    for _ in range(_STEPS):
        if at_a < at_b:
            low, a, at_a = a, b, at_b
            b = low + _GOLDEN * (high - low)
            at_b = of(b)
        else:
            high, b, at_b = b, a, at_a
            a = high - _GOLDEN * (high - low)
            at_a = of(a)
    return max(at_a, at_b, of(0.0), of(1.0))
