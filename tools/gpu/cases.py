"""What is run on the GPU: for each op and type some calls, which tests/python/oracle.py answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch_xla
from operands import any_bits, exact_values, group_forms
from oracle import (
    BITWISE,
    COMPLEX,
    DTYPES,
    INTEGERS,
    Case,
    grouped,
    issue,
    put,
    reduce_kinds,
    rows_of,
    take_all,
)

UNEVEN = ("uneven_all_gather", "uneven_reduce_scatter", "uneven_all_to_all")
Forms = Iterator[tuple[tuple[int, ...], dict[str, Any]]]


def forms(world: int) -> list[Any]:
    """Groups: the world, reversed, alone, equal, scrambled, unequal, and some ranks in none."""
    partial = [[[0, 1]]] if world > 2 else []
    return [*group_forms(world, unequal=True), *partial]


def gathers(world: int) -> Forms:
    for number, groups in enumerate(forms(world)):
        yield (3, 1, 2), {"dim": number % 3, "groups": groups}
    yield (), {}


def permutes(world: int) -> Forms:
    ring = [(rank, (rank + 1) % world) for rank in range(world)]
    for pairs in (ring, ring[:-1], [(world - 1, 0)], [(0, 0)]):
        if pairs:
            yield (3, 2), {"pairs": pairs}


def exchanges(world: int) -> Forms:
    for number, groups in enumerate(forms(world)):
        size = 12 * world  # the longest group of every form divides it
        axes = {"split_dimension": number % 2, "concat_dimension": (number // 2) % 2}
        yield (size, size), {**axes, "groups": groups}


def broadcasts(world: int) -> Forms:
    for groups in forms(world):
        yield (3, 2), {"root_ordinal": groups[-1][0] if groups else world - 1, "groups": groups}


def reductions(world: int, dtype: str, scatter: bool) -> Forms:
    kinds = reduce_kinds(dtype)
    for kind in kinds:
        for number, groups in enumerate(forms(world)):
            three = {3} & set(map(len, groups or []))
            if three and (kind == "average" or (kind in BITWISE and dtype in INTEGERS)):
                continue  # rounds; is refused
            fields: dict[str, Any] = {"reduce_type": kind, "groups": groups}
            fields |= {"scatter_dim": number % 2} if scatter else {}
            fields |= {"factor": 2} if kind == "premultiplied_sum" else {}
            yield (12 * world, 12 * world) if scatter else (5, 2), fields


def uneven(op: str, world: int, dtype: str, rng: np.random.Generator) -> list[Case]:
    cases = []
    for number, groups in enumerate([*forms(world)[:2], *forms(world)[3:5]]):
        sizes: list[Any] = grouped([(rank * 2 + 1) % 5 for rank in range(world)], groups)
        if op == "uneven_all_to_all":
            together = [
                [any({i, j} <= {*g} for g in groups or [range(world)]) for j in range(world)]
                for i in range(world)
            ]
            sizes = [
                [(i + 2 * j + 1) % 4 * together[i][j] for j in range(world)] for i in range(world)
            ]
        fields: dict[str, Any] = {"sizes": sizes, "groups": groups}
        rows = [rows_of(op, sizes, groups, rank) for rank in range(world)]
        if op == "uneven_reduce_scatter":
            kinds = reduce_kinds(dtype)
            kinds = [kind for kind in kinds if kind not in ("average", "premultiplied_sum")]
            kind = kinds[number % len(kinds)]
            if dtype in INTEGERS and kind in BITWISE:
                kind = "sum"
            inputs = [exact_values(rng, dtype, (n, 3), kind) for n in rows]
            fields["reduce_type"] = kind
        else:
            inputs = [any_bits(rng, dtype, (n, 3)) for n in rows]
        cases.append(Case(op, inputs, fields))
    return cases


MOVES: dict[str, Callable[[int], Forms]] = {
    "all_gather": gathers,
    "collective_permute": permutes,
    "send_recv": permutes,
    "all_to_all": exchanges,
    "collective_broadcast": broadcasts,
}


def batches(world: int) -> Iterator[tuple[str, list[Case]]]:
    """All calls of one op and type; each batch is one graph."""
    for dtype in ("f32", *(name for name in DTYPES if name != "f32")):
        rng = np.random.default_rng(world)
        for op, shapes in MOVES.items():
            made = [
                Case(op, [any_bits(rng, dtype, s) for _ in range(world)], f)
                for s, f in shapes(world)
            ]
            yield f"{op} {dtype}", made
        for op in ("all_reduce", "reduce_scatter"):
            made = [
                Case(op, [exact_values(rng, dtype, s, f["reduce_type"]) for _ in range(world)], f)
                for s, f in reductions(world, dtype, op == "reduce_scatter")
                if not (f["reduce_type"] == "average" and dtype in COMPLEX)
            ]
            yield f"{op} {dtype}", made
        for op in UNEVEN:
            yield f"{op} {dtype}", uneven(op, world, dtype, rng)


def _filled(array: np.ndarray, rows: int) -> np.ndarray:
    return np.concatenate([array, np.zeros((rows - len(array), *array.shape[1:]), array.dtype)])


def run(rank: int, case: Case, wanted: list[np.ndarray]) -> tuple[torch.Tensor, np.ndarray]:
    """Make the call; its result, not computed yet, and what it must be."""
    if case.op not in UNEVEN:
        return issue(case, put(case.inputs[rank])), wanted[rank]
    # All ranks run one program, with the shapes of the largest.
    operand = put(_filled(case.inputs[rank], max(map(len, case.inputs))))
    padded = Case(case.op, case.inputs, {**case.fields, "padded": True})
    return issue(padded, operand), _filled(wanted[rank], max(map(len, wanted)))


def results(tensors: list[torch.Tensor]) -> list[np.ndarray]:
    """Their values, by one graph."""
    taken: list[np.ndarray] = take_all(tensors)
    torch_xla.sync()
    return taken
