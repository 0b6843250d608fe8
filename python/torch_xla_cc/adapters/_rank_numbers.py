"""Numbers that differ by the rank, for Python an int, and for tensors data of the graph.

Where a shard begins in a vocabulary is one: as a constant it would make a program of its own for
each rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from torch_xla_cc.distributed import own_part


class RankNumber(int):
    """group.rank() * by + more, of this rank."""

    group: dist.ProcessGroup
    by: int
    more: int

    def __new__(cls, group: dist.ProcessGroup, by: int, more: int = 0) -> RankNumber:
        """The number, and what it is made of."""
        number = super().__new__(cls, group.rank() * by + more)
        number.group, number.by, number.more = group, by, more
        return number

    def __copy__(self) -> RankNumber:
        """Itself: nothing of it changes."""
        return self

    def __deepcopy__(self, memo: object) -> RankNumber:
        """Itself, with its group, which has no copies."""
        return self

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """What is saved is a number: groups cannot be."""
        return int, (int(self),)

    def on(self, like: torch.Tensor) -> torch.Tensor | int:
        """As s64[] on its device; as it is where programs are each rank's own anyway."""
        rank = own_part.rank(self.group, like)
        return int(self) if rank is None else rank * self.by + self.more


_NAMES = ("lt", "less", "ge", "greater_equal", "sub")
# What is done with them and tensors; others may need an int, which a tensor is read for.
FUNCTIONS = (
    *(torch.Tensor.__lt__, torch.Tensor.__ge__, torch.Tensor.__sub__),
    *(getattr(where, name) for where in (torch.Tensor, torch) for name in _NAMES),
)


def as_data(function: Callable[..., Any], args: Sequence[Any], keywords: dict[str, Any]) -> Any:  # noqa: ANN401
    """Call one of these functions; such numbers among its arguments become tensors."""
    tensor = next((x for x in args if isinstance(x, torch.Tensor)), None)
    if tensor is not None:
        args = [x.on(tensor) if type(x) is RankNumber else x for x in args]
    return function(*args, **keywords)
