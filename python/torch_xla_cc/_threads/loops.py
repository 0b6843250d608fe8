"""torch_xla's `while_loop` and `scan` on a rank of a pod, with collectives of ours in them.

It traces what is to be repeated, as a computation of its own. Calls in there have a chain of their
own (_runtime/chains.py), and such a loop is a program of its own: it takes no token, so its place
among other collectives of a program would be where its results are used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from torch_xla_cc._processes import world
from torch_xla_cc._runtime import chains
from torch_xla_cc._runtime.device_tensors import run
from torch_xla_cc._runtime.patches import Changes
from torch_xla_cc._runtime.private import fori_loop, pytree, scan


def _tensors_of(result: object) -> list[torch.Tensor]:
    """Of a loop's result: lists of them, in lists."""
    leaves = pytree.tree_leaves(result)
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.device.type == "xla"]


def put(
    changes: Changes,
    chained: Callable[[], bool],
    rank: Callable[[], int],
    run_pending: Callable[[int], object],
    run_all: Callable[[int], None],
) -> None:
    """Make the changes.

    Args:
      chained: whether this is a rank whose calls are ordered by chains alone.
      rank: the rank whose device is this thread's default.
      run_pending: runs what is pending on a rank, if there are collectives in it.
      run_all: runs all that is pending.
    """

    def looped(make: Callable[[], Any]) -> Any:  # noqa: ANN401 (what torch_xla returns)
        calls = chains.calls_apart()
        result = make()
        if chains.calls_apart() == calls:
            return result
        if agreed := world.active():
            if world.calls_pending():
                del result
                agreed.clear()
                result = make()
            run(_tensors_of(result))  # and not what others may still have pending
            return result
        if chains.is_pending(rank(), ()):
            del result
            run_pending(rank())
            result = make()
        run_all(rank())
        return result

    def apart(function: Callable[..., Any]) -> Callable[..., Any]:
        def traced(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            with chains.apart(rank()):
                return function(*args, **options)

        chains.APART.add(traced.__code__)
        return traced

    def of_while(
        theirs: Callable[..., Any],
        condition: Callable[..., Any],
        body: Callable[..., Any],
        *args: Any,  # noqa: ANN401
        **options: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        if not chained():
            return theirs(condition, body, *args, **options)
        make = functools.partial(theirs, apart(condition), apart(body), *args, **options)
        return looped(make)

    def traced_by_scan(
        theirs: Callable[..., Any],
        *args: Any,  # noqa: ANN401
        **options: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        return (apart(theirs) if chained() else theirs)(*args, **options)

    def of_scan(theirs: Callable[..., Any], *args: Any, **options: Any) -> Any:  # noqa: ANN401
        if not chained():
            return theirs(*args, **options)
        return looped(functools.partial(apart(theirs), *args, **options))

    changes.wrap(fori_loop, "_xla_while_loop", of_while)
    changes.wrap(scan, "value_and_grad_partitioned", traced_by_scan)
    changes.wrap(scan, "_scan_impl_flat", of_scan)
