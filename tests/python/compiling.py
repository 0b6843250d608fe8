"""Calls functions as they are and through torch.compile, on ranks, with values that change.

A function takes where it runs, and a tensor. Both ways have to give the same bits, call by call,
and to leave the same in the tensor, or in its gradient.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import torch
import torch_xla
import worlds
from torch_xla.debug import metrics

# By call: how many times the rows. A size that comes again, and sizes that are new.
SAME = (1, 1, 1)
FREE = (1, 2, 3, 1, 4)


class At(NamedTuple):
    """Where a function runs, and what collectives of that many ranks take."""

    rank: int
    size: int
    groups: list[list[int]]
    ring: list[tuple[int, int]]
    rows: list[int]  # by rank
    matrix: list[list[int]]  # rows from rank to rank


def at(rank: int) -> At:
    size = torch_xla.runtime.global_device_count()
    ranks = range(size)
    return At(
        rank,
        size,
        [[0, 2], [3, 1]] if size == 4 else [list(reversed(ranks))],
        [(i, (i + 1) % size) for i in ranks],
        [i + 1 for i in ranks],
        [[(i + j) % 3 for j in ranks] for i in ranks],
    )


def _values(rank: int, function: Any, sizes: tuple[int, ...], backward: bool, mark: bool) -> Any:
    """By call: the results, and what became of the tensor."""
    where = at(rank)
    found = []
    for call, size in enumerate(sizes):
        # Four blocks of a row for each rank.
        rows = 4 * where.size * size
        x = torch.arange(2.0 * rows).reshape(rows, 2) + 10 * rank + call
        x = x.to(torch_xla.device())
        if backward:
            x.requires_grad_()
        if mark:
            torch._dynamo.mark_dynamic(x, 0)
        out = function(where, x)
        out = [out] if isinstance(out, torch.Tensor) else list(out or [])
        if backward:
            # Of each element, call and rank another gradient.
            sum(
                (
                    y * (torch.arange(y.numel()).reshape(y.shape) + rank + call + 1).to(y.device)
                ).sum()
                for y in out
            ).backward()
            x = x.grad
        found.append([y.detach().cpu() for y in (*out, x)])
    return found


def _both(rank: int, module: str, name: str, options: dict[str, Any]) -> Any:
    function = getattr(importlib.import_module(module), name)
    options = dict(options)
    how = options.pop("sizes", SAME), options.pop("backward", False)
    mark = options.pop("mark", False)
    wanted = _values(rank, function, *how, False)
    compiled = torch.compile(function, fullgraph=True, **options)
    # Guards on free sizes in Python: those in C++ wait for a compiler.
    torch._dynamo.config.enable_cpp_symbolic_shape_guards = False
    torch._dynamo.config.recompile_limit = 1000  # the functions are compiled for many tests
    ours = _values(rank, compiled, *how, mark)
    return ours, wanted


def check(world: int, function: Any, backend: str = "openxla", **options: Any) -> None:
    """`sizes`, `backward`, `mark` (mark_dynamic) and what torch.compile takes."""
    options["backend"] = backend
    names = function.__module__, function.__name__
    for rank, (ours, wanted) in enumerate(worlds.run(world, _both, *names, options)):
        for call, (mine, right) in enumerate(zip(ours, wanted, strict=True)):
            for x, y in zip(mine, right, strict=True):
                assert x.dtype == y.dtype
                assert torch.equal(x, y), (rank, call, x, y)


def compiles() -> int:
    """How many programs XLA has compiled."""
    data = metrics.metric_data("CompileTime")
    return 0 if data is None else data[0]
