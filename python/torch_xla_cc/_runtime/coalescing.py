"""What torch.distributed keeps of calls that are coalesced.

An error among them leaves it open: `batch_isend_irecv` would refuse to begin the next time, and the
next `all_reduce` would be kept for an end that never comes, and return.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from torch_xla_cc import _C
from torch_xla_cc._runtime.private import c10d


def _end(group: Any) -> None:  # noqa: ANN401 (a ProcessGroup)
    """End the coalesced calls of a group, if its backend for XLA devices is ours."""
    if not isinstance(group, dist.ProcessGroup):  # this rank is in none
        return
    xla = torch.device("xla")
    with contextlib.suppress(Exception):  # the error of the block says more
        if xla in group._device_types and _C.stop_coalescing(group._get_backend(xla)):
            c10d._world.pg_coalesce_state.pop(group, None)


def _managed(theirs: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    def managed(
        group: Any = None,  # noqa: ANN401
        device: torch.device | None = None,
        async_ops: bool = False,
    ) -> Iterator[Any]:
        """Calls of the block as one; an error in it ends them."""
        group = group or c10d._get_default_group()
        of_another = group in c10d._world.pg_coalesce_state
        manager = contextlib.contextmanager(theirs)(group, device, async_ops)
        try:
            with manager as calls:
                of_another = False
                yield calls
        except BaseException:
            if not of_another:  # which refuses another block within
                _end(group)
            raise

    return managed


def watch() -> None:
    """Have an error end coalesced calls of our groups, from wherever it comes.

    In torch's function itself, and not its name: who has imported it by name has it too.
    """
    helper = c10d._coalescing_manager
    cell = dict(zip(helper.__code__.co_freevars, helper.__closure__, strict=True))["func"]
    if cell.cell_contents.__module__ != __name__:
        cell.cell_contents = _managed(cell.cell_contents)
