"""What FSDP2 joins to one flat tensor before it gathers or reduces, in the parts that it has.

In a compiled program the joining is for nothing: one call takes several tensors, and the compiler
keeps no copy of what is joined and taken apart. Small parameters stay joined, since an instruction
for each would cost more. FSDP2 works with its flat tensors as before; they are made of slices and
concatenations, which the compiler undoes.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from torch_xla_cc._runtime.patches import Changes
from torch_xla_cc._runtime.private import fsdp_collectives
from torch_xla_cc.distributed import own_part

_SMALL = 2**19  # bytes, of all ranks' parts together


class _Joined(threading.local):
    """The flat tensor that this thread joined last, and the elements of each part, of one rank."""

    tensor: weakref.ref[torch.Tensor] | None = None
    sizes: Sequence[int] = ()


_joined = _Joined()


def joined(tensor: torch.Tensor, sizes: Sequence[int]) -> None:
    """It has parts of these sizes; of each rank in turn, if it is to be reduced."""
    _joined.tensor, _joined.sizes = weakref.ref(tensor), list(sizes)


class _Pieces:
    """What goes through the links by itself: large parts, and all small ones together."""

    def __init__(self, sizes: Sequence[int], bytes_each: int) -> None:
        self._sizes = sizes
        large = [[i] for i, size in enumerate(sizes) if size * bytes_each >= _SMALL]
        small = [i for i, size in enumerate(sizes) if size * bytes_each < _SMALL]
        self._pieces = [*large, *([small] if small else [])]

    def __len__(self) -> int:
        return len(self._pieces)

    def apart(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """The pieces of each row of a flat tensor, one behind the other."""
        parts = rows.split(self._sizes, 1)
        return [torch.cat([parts[i] for i in piece], 1).reshape(-1) for piece in self._pieces]

    def together(self, pieces: Sequence[torch.Tensor], rows: int) -> torch.Tensor:
        """The flat tensor of so many rows, of its pieces."""
        parts: dict[int, torch.Tensor] = {}
        for piece, x in zip(self._pieces, pieces, strict=True):
            sizes = [self._sizes[i] for i in piece]
            parts.update(zip(piece, x.view(rows, -1).split(sizes, 1), strict=True))
        return torch.cat([parts[i] for i in range(len(self._sizes))], 1).view(-1)


def _pieces(tensor: torch.Tensor, group: dist.ProcessGroup) -> _Pieces | None:
    """Those of what was joined last; None if it is one, or each call goes through the host."""
    made = _joined.tensor
    if made is None or made() is not tensor or not own_part.is_in_programs(group, tensor):
        return None
    pieces = _Pieces(_joined.sizes, tensor.element_size() * group.size())
    return pieces if len(pieces) > 1 else None


def _carried(
    pieces: _Pieces,
    call: Callable[[list[torch.Tensor], list[torch.Tensor]], dist.Work],
    output: torch.Tensor,
    source: torch.Tensor,
    rows: tuple[int, int],
) -> dist.Work:
    """By one call for all pieces; `rows` are those of the source and of the output."""
    before, after = rows
    inputs = pieces.apart(source.view(before, -1))
    outputs = [x.new_empty(x.numel() // before * after) for x in inputs]
    work = call(outputs, inputs)
    work.wait()  # of nodes of the graph: nothing waits
    output.copy_(pieces.together(outputs, after))
    return work


def _all_gather(
    theirs: Callable[..., Any],
    comm: Any,  # noqa: ANN401 (a DefaultAllGather)
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    group: dist.ProcessGroup,
    async_op: bool = False,
) -> Any:  # noqa: ANN401 (a Work, or None)
    pieces = _pieces(input_tensor, group)
    if pieces is None:
        return theirs(comm, output_tensor, input_tensor, group, async_op)
    call = group.allgather_into_tensor_coalesced
    work = _carried(pieces, call, output_tensor, input_tensor, (1, group.size()))
    return work if async_op else None


def _reduce_scatter(
    theirs: Callable[..., Any],
    comm: Any,  # noqa: ANN401 (a DefaultReduceScatter)
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    group: dist.ProcessGroup,
    op: Any,  # noqa: ANN401 (a ReduceOp, or its kind)
    async_op: bool = False,
) -> Any:  # noqa: ANN401 (a Work, or None)
    pieces = _pieces(input_tensor, group)
    if pieces is None:
        return theirs(comm, output_tensor, input_tensor, group, op, async_op)
    options = dist.ReduceScatterOptions()
    options.reduceOp = op

    def call(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> dist.Work:
        return group.reduce_scatter_tensor_coalesced(outputs, inputs, options)

    work = _carried(pieces, call, output_tensor, input_tensor, (group.size(), 1))
    return work if async_op else None


def install(changes: Changes) -> None:
    """In the calls that fully_shard makes if it is given no others."""
    changes.wrap(fsdp_collectives.DefaultAllGather, "__call__", _all_gather)
    changes.wrap(fsdp_collectives.DefaultReduceScatter, "__call__", _reduce_scatter)
