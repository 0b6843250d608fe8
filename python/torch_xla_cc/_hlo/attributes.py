"""Attributes of collectives as HLO text has them: replica groups and pairs."""

from __future__ import annotations

import itertools
import math
import re

from .instruction import Groups

# The most devices that are taken for real: what is written in a few bytes could fill the memory.
MOST_DEVICES = 1 << 22

_LIST = re.compile(r"\{\s*(?:\{[\d,\s]*\}[\s,]*)*\}")
_INNER = re.compile(r"\{([\d,\s]*)\}")
_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")


def groups(text: str) -> Groups:
    """Replica groups: "{{0,1},{2,3}}", "{}" or "[2,4]<=[4,2]T(1,0)". ValueError for others."""
    text = text.strip()
    if iota := _IOTA.fullmatch(text):
        shape, dims, order = (_numbers(part or "") for part in iota.groups())
        if len(shape) != 2:
            raise ValueError(f"replica groups {text[:80]!r}: expected [groups,size]<=[...]")
        return iota_groups(shape[0], shape[1], dims, order)
    if not _LIST.fullmatch(text):
        raise ValueError(f"replica groups {text[:80]!r}: expected lists in braces, or [n,m]<=[...]")
    return tuple(_numbers(inner) for inner in _INNER.findall(text[1:-1]))


def pairs(text: str) -> tuple[tuple[int, int], ...]:
    """Pairs of source and target: "{{0,1},{1,0}}"."""
    found = groups(text)
    if any(len(pair) != 2 for pair in found):
        raise ValueError(f"pairs {text[:80]!r}: expected two numbers in each")
    return tuple((source, target) for source, target in found)


def iota_groups(
    count: int, size: int, dims: tuple[int, ...], order: tuple[int, ...] = ()
) -> Groups:
    """Groups that are the numbers from 0 in an array of `dims`, transposed, and cut."""
    order = order or tuple(range(len(dims)))
    total = math.prod(dims)
    if total != count * size or total > MOST_DEVICES or sorted(order) != list(range(len(dims))):
        raise ValueError(
            f"replica groups [{count},{size}]<={list(dims)} T{list(order)}: expected as many "
            f"on both sides, up to {MOST_DEVICES}, and an order of the dimensions"
        )
    strides = [math.prod(dims[at + 1 :]) for at in range(len(dims))]
    axes = [range(0, dims[axis] * strides[axis], strides[axis] or 1) for axis in order]
    numbers = [sum(at) for at in itertools.product(*axes)]
    return tuple(tuple(numbers[at * size : (at + 1) * size]) for at in range(count))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(_number(part) for part in text.split(",") if part.strip())


def _number(text: str) -> int:
    number = int(text) if len(text.strip()) < 19 else -1
    if not 0 <= number < 1 << 40:
        raise ValueError(f"{text.strip()[:40]}: expected a number of a device")
    return number
