"""Ranks whose tensors differ in size: from a rank's own rows to the node's operand, and back.

The nodes have one shape on all ranks, since all run one program. Here, and nowhere else, a rank's
shapes are its own: its rows are filled up before the call, and what is behind its rows in the
result is cut off after it.
"""

from __future__ import annotations

import operator as numbers
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch_xla import runtime

from torch_xla_cc import _C
from torch_xla_cc._ops.operators import compiling, operator
from torch_xla_cc._ops.targets import ranks_are_threads
from torch_xla_cc._ops.types import Groups, Tensors
from torch_xla_cc._runtime.private import assume_constant_result
from torch_xla_cc._runtime.show import show

_MOST_ROWS = 2**31 - 1  # (V1): more are refused, and not filled up before


class Rows(NamedTuple):
    """Numbers of rows, of one rank."""

    given: int  # that it has
    operand: int  # of the node's operand
    taken: int  # that it gets


@assume_constant_result  # type: ignore[untyped-decorator]
def own_rank() -> int:
    """The rank that this thread is, as a constant for torch.compile."""
    return int(runtime.global_ordinal())


def _ints(values: object) -> list[int]:
    if not isinstance(values, (list, tuple)):
        raise TypeError  # for _count: the extension says it better
    return [numbers.index(value) for value in values]


def _members(groups: Groups, world_size: int) -> list[list[int]]:
    if groups is None or (isinstance(groups, (list, tuple)) and not groups):
        return [list(range(world_size))]
    return [_ints(group) for group in groups]


def of_all_gather(sizes: Sequence[int], groups: Groups, rank: int) -> Rows:
    """What uneven_all_gather gives and takes."""
    lists = _members(groups, len(sizes))
    taken = [sum(sizes[member] for member in group) for group in lists if rank in group]
    return Rows(sizes[rank], max(sizes), sum(taken))


def of_reduce_scatter(sizes: Sequence[int], groups: Groups, rank: int) -> Rows:
    """What uneven_reduce_scatter gives and takes."""
    sums = [sum(sizes[i] for i in group) for group in _members(groups, len(sizes))]
    own = [n for n, group in zip(sums, _members(groups, len(sizes)), strict=True) if rank in group]
    return Rows(sum(own), max(sums), sizes[rank])


def of_all_to_all(sizes: Sequence[Sequence[int]], groups: Groups, rank: int) -> Rows:
    """What uneven_all_to_all gives and takes."""
    return Rows(sum(sizes[rank]), max(map(sum, sizes)), sum(row[rank] for row in sizes))


def _filled(op: str, argument: str, tensor: torch.Tensor, rows: Rows, rank: int) -> torch.Tensor:
    if tensor.dim() == 0 or tensor.shape[0] != rows.given:
        raise ValueError(
            f"{op}: {argument} has the shape {list(tensor.shape)} on rank {rank}, but by sizes "
            f"this rank gives {rows.given} rows of dimension 0. Pass those alone; or, with "
            f"padded=True, {rows.operand} rows on every rank"
        )
    missing = rows.operand - rows.given
    if missing == 0:
        return tensor
    if rows.given == 0:
        shape = (missing, *tensor.shape[1:])
        return torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)
    # With its last row. Not torch.cat: XLA:CPU concatenates narrow floats as f32, and so quietens
    # NaNs.
    index = torch.arange(rows.operand, device=tensor.device).clamp(max=rows.given - 1)
    return tensor.index_select(0, index)


def call(
    op: str,
    argument: str,
    value: Tensors,
    fields: tuple[Any, ...],
    groups: Groups,
    padded: bool,
    count: Callable[[Any, Groups, int], Rows],
) -> Tensors:
    """`op` of this rank's own rows, or of operands as the node takes them if `padded`.

    `count` tells the rows by the last of the fields, the sizes.
    """
    given: Any = value
    values = [value] if isinstance(value, torch.Tensor) else value
    rows = None
    if not padded:
        rank = own_rank()
        rows = _count(op, values, fields[-1], groups, rank, count)
    if rows is not None:
        values = [_filled(op, argument, tensor, rows, rank) for tensor in values]
        given = values[0] if isinstance(value, torch.Tensor) else values
    results: Any
    if compiling():
        results = operator(op, given, *fields, groups or [])
    else:
        results = getattr(_C, op)(given, *fields, groups)
    if rows is not None and isinstance(results, torch.Tensor):
        results = results[: rows.taken]
    elif rows is not None:
        results = [result[: rows.taken] for result in results]
    return results  # type: ignore[no-any-return]


def _check_one_program(op: str, sizes: object, by_rank: set[Rows]) -> None:
    """Raise if ranks with shapes of their own would make programs of their own, and must not."""
    if len(by_rank) > 1:
        target, _ = _C.current_target()
        raise ValueError(
            f"{op}: sizes = {show(sizes)} differ from rank to rank, and so would the programs of "
            f"ranks that pass their own rows alone; on {target} all ranks run one program. Pass "
            f"padded=True, with {next(iter(by_rank)).operand} rows on every rank"
        )


def _count(
    op: str,
    values: Any,  # noqa: ANN401 (what the caller passed, unverified)
    sizes: Any,  # noqa: ANN401
    groups: Groups,
    rank: int,
    count: Callable[[Any, Groups, int], Rows],
) -> Rows | None:
    """The rows of this rank; None if an argument is invalid: the extension says in which way."""
    lists = isinstance(values, (list, tuple)) and isinstance(sizes, (list, tuple))
    if not lists or not all(isinstance(tensor, torch.Tensor) for tensor in values):
        return None
    try:
        matrix = isinstance(sizes[0], (list, tuple))
        plain = [_ints(size) for size in sizes] if matrix else _ints(sizes)
        rows = count(plain, groups, rank)
        ranks = [rank] if ranks_are_threads() else range(len(plain))
        by_rank = {count(plain, groups, one) for one in ranks}
    except Exception:
        return None
    if min(rows) < 0 or max(rows) > _MOST_ROWS:
        return None
    _check_one_program(op, plain, by_rank)
    return rows
