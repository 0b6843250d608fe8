"""Calls of the uneven ops with sizes that do not fit: the operands, the world or the groups."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

from invalid_calls import NOT_INTS, NOT_LISTS, Call, show

import torch_xla_cc
from torch_xla_cc import _C

BAD_SIZES = [-1, -(2**31), -(2**63), 2**31, 2**40, 2**62, 2**63 - 1]


def partition(rng: random.Random, world: int) -> list[list[int]] | None:
    """Groups of any sizes that name all ranks; or none."""
    ranks = rng.sample(range(world), world)
    cuts = sorted(rng.sample(range(1, world), rng.randrange(world)))
    lists = [ranks[a:b] for a, b in itertools.pairwise([0, *cuts, world])]
    return rng.choice([None, lists, lists])


def valid_sizes(
    rng: random.Random, op: str, groups: list[list[int]] | None, world: int
) -> tuple[Any, int]:
    """Sizes, and the rows that an operand must then have."""
    lists = groups or [list(range(world))]
    if op == "uneven_all_to_all":
        matrix = [[0] * world for _ in range(world)]
        for group in lists:
            for i, j in itertools.product(group, group):
                matrix[i][j] = rng.randrange(5)
        return matrix, max(map(sum, matrix))
    sizes = [rng.randrange(9) for _ in range(world)]
    if op == "uneven_all_gather":
        return sizes, max(sizes)
    return sizes, max(sum(sizes[rank] for rank in group) for group in lists)


def spoil(rng: random.Random, sizes: Any, rows: int, groups: Any, world: int) -> tuple[Any, int]:
    """The same with one thing wrong."""
    matrix = isinstance(sizes[0], list)
    row = rng.choice(sizes) if matrix else sizes
    match rng.randrange(6):
        case 0:
            return rng.choice([*NOT_LISTS, None]), rows
        case 1:
            row[rng.randrange(world)] = rng.choice([*NOT_INTS, None, *BAD_SIZES, *BAD_SIZES])
        case 2:
            row.append(0)
        case 3:
            row.pop()
        case 4:
            rows += rng.choice([1, 2, 1000]) if rows == 0 else rng.choice([-1, 1, 1000])
        case _:
            lists = groups or [list(range(world))]
            if not matrix or len(lists) < 2:
                return sizes[:-1] if rng.random() < 0.5 else [sizes], rows
            one, other = rng.sample(lists, 2)
            sizes[one[0]][other[-1]] = 1
    return sizes, rows


def uneven_calls(rng: random.Random, count: int) -> Iterator[Call]:
    """For targets that are not here: every rank of a world of 2 to 9."""
    for _ in range(count):
        op = rng.choice(["uneven_all_gather", "uneven_reduce_scatter", "uneven_all_to_all"])
        world = rng.randrange(2, 10)
        groups = partition(rng, world)
        sizes, rows = spoil(rng, *valid_sizes(rng, op, groups, world), groups, world)
        target = rng.choice(["tpu:v5e", "tpu:v6e", "gpu:h100", "cpu", "neuron"])
        fields = (sizes, groups)
        if op == "uneven_reduce_scatter":
            fields = ("sum", 1.0, 1.0, *fields)
        about = f"lower_{op} of {rows} rows, sizes={show(sizes)}, groups={groups}, {world} ranks"
        words = ("sizes",)
        yield Call(op, words, _lowering(target, world, op, [(11, [rows, 3])], *fields), about)


def _lowering(target: str, world: int, op: str, *args: Any) -> Callable[[], Any]:
    def run() -> Any:
        with torch_xla_cc.lowering_for(target, world):
            return getattr(_C, f"lower_{op}")(*args)

    return run
