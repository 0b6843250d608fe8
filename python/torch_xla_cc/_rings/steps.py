"""Matmuls taken apart in steps around a ring, so that blocks travel while others are multiplied.

With places 0 to n - 1 in a group, and `turn` t for what belongs to the place t before one's own:

  all_gather_matmul       y[turn t] = x of the rank t places before @ weight
  matmul_reduce_scatter   y = sum over t of (x[own block] @ weight) of the rank t places before

Blocks go up the ring for half of the turns and down for the others: a TPU has a link either way.
Which block is whose is data, so all ranks have one program.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch_xla.core.xla_model import optimization_barrier_

from torch_xla_cc import _C
from torch_xla_cc import xla_model as xm
from torch_xla_cc._ops.linear import as_data, members
from torch_xla_cc._ops.operators import compiling
from torch_xla_cc._ops.types import Groups
from torch_xla_cc._ops.uneven import own_rank
from torch_xla_cc._runtime.private import assume_constant_result

_Blocks = dict[int, torch.Tensor]  # by turn


@dataclass(frozen=True)
class Ring:
    """The ranks of each group, as neighbours."""

    ranks: int
    places: list[list[int]]  # of each rank in its group, of the one before it, and so on
    up: list[list[int]]  # pairs of source and target
    down: list[list[int]]
    # For a GPU what is computed is tied to what has arrived: its compiler makes one matmul of those
    # with one weight, after all steps. A TPU's does not, and takes a tie for a wait.
    tied: bool

    def back(self, turns: torch.Tensor) -> tuple[Ring, torch.Tensor]:
        """The ring for gradients, and its turns: on a GPU it goes the other way round.

        Its compiler combines permutes of the same pairs, if none needs the other, into one that it
        then crashes on. What a gradient needs may be computed again beside it.
        """
        if not self.tied:
            return self, turns
        return replace(self, up=self.down, down=self.up), turns.flip(0).roll(1)

    @property
    def ups(self) -> int:
        """Turns whose blocks go up. A GPU has one link for both ways."""
        return self.ranks - 1 if self.tied else self.ranks // 2

    def turns(self, device: torch.device) -> torch.Tensor:
        """The place of each turn: the row of this rank in a table that all ranks have."""
        table = torch.tensor(self.places, device=device)
        rank = _constant(device) if compiling() else as_data(own_rank(), torch.int64, device)
        return table.index_select(0, rank).squeeze(0)

    def on(self, blocks: _Blocks) -> _Blocks:
        """Each a rank further on its way; without those that have come to its end."""
        further = {}
        for turn, block in blocks.items():
            if turn < self.ups:
                further[turn + 1] = _shift(block, self.up)
            before = (turn or self.ranks) - 1
            if (turn == 0 or turn > self.ups) and before > self.ups:
                further[before] = _shift(block, self.down)
        return further

    def tie(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The same, of which each is there when all are."""
        if not self.tied or compiling():
            return values
        tied = [value.clone() for value in values]  # a tie changes what it is given
        optimization_barrier_(tied)
        return tuple(tied)


@assume_constant_result  # type: ignore[untyped-decorator]
def _constant(device: torch.device) -> torch.Tensor:
    """The rank for torch.compile, which takes one such tensor into a graph, and no second."""
    return _rank(own_rank(), device)


@functools.lru_cache
def _rank(rank: int, device: torch.device) -> torch.Tensor:
    return as_data(rank, torch.int64, device)  # type: ignore[no-any-return]


@assume_constant_result  # type: ignore[untyped-decorator]
def _target() -> tuple[str, int]:
    return _C.current_target()


def ring(op: str, groups: Groups) -> Ring:
    """That of the groups. ValueError if they are not of one size, or leave ranks out.

    Under torch.compile the collectives of the steps find what is wrong with groups.
    """
    lists = members(groups) if compiling() else _C.group_lists(op, groups)
    kind, world = _target()
    if kind.startswith("spmd:"):
        # Partitions have one place in all of torch_xla's numbers of ranks: each would take the
        # blocks of the first.
        raise ValueError(
            f"{op}: ranks are partitions here ({kind}), and its steps know replicas only. Use "
            "gather_from_sequence and reduce_scatter_to_sequence, with the matmul beside them"
        )
    sizes = sorted({len(group) for group in lists})
    if len(sizes) != 1 or sorted(rank for group in lists for rank in group) != list(range(world)):
        raise ValueError(
            f"{op}: groups = {lists}, but they must be of one size and hold each of the {world} "
            "ranks once. Use gather_from_sequence or reduce_scatter_to_sequence, which take others"
        )
    (ranks,) = sizes
    up = [[group[i], group[(i + 1) % ranks]] for group in lists for i in range(ranks)]
    place = {rank: group.index(rank) for group in lists for rank in group}
    return Ring(
        ranks,
        [[(place[rank] - turn) % ranks for turn in range(ranks)] for rank in range(world)],
        up,
        [[target, source] for source, target in up],
        kind.startswith("gpu"),
    )


def gathered(
    x: torch.Tensor, weight: torch.Tensor, of: Ring, turns: torch.Tensor, dim: int
) -> torch.Tensor:
    """All ranks' `x @ weight` along `dim`."""
    shape = [*x.shape[:-1], weight.shape[-1]]
    whole = x.new_zeros([*shape[:dim], of.ranks, *shape[dim:]])
    here = {0: x}
    while here:
        coming = of.on(here)
        for turn, block in here.items():
            product = (block @ weight).unsqueeze(dim)
            whole = whole.index_copy(dim, turns[turn : turn + 1], product)
        whole, *blocks = of.tie(whole, *coming.values())
        here = dict(zip(coming, blocks, strict=True))
    return whole.flatten(dim, dim + 1)


def scattered(
    x: torch.Tensor, weight: torch.Tensor, of: Ring, turns: torch.Tensor, dim: int
) -> torch.Tensor:
    """This rank's block along `dim` of the sum of all ranks' `x @ weight`."""

    def arrived(pairs: list[list[int]], way: Sequence[int]) -> torch.Tensor:
        """The sum of the ranks on a way to this one."""
        total = _block(x, of, turns, dim, way[0]) @ weight
        for turn in way[1:]:
            total, block = of.tie(total, _block(x, of, turns, dim, turn))
            total = _shift(total, pairs) + block @ weight
        return total

    downs = of.ranks - 1 - of.ups
    # The last of the turns that go up is this rank's own.
    total = arrived(of.up, [*range(of.ranks - of.ups, of.ranks), 0])
    if downs:
        total = total + _shift(arrived(of.down, range(downs, 0, -1)), of.down)
    return total


def contracted(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The gradient of a weight: summed over all dimensions but the last."""
    return a.flatten(0, -2).mH @ b.flatten(0, -2)


def _block(x: torch.Tensor, of: Ring, turns: torch.Tensor, dim: int, turn: int) -> torch.Tensor:
    """The block of the place that a turn is of: compilers make a dynamic slice of it."""
    blocks = x.unflatten(dim, (of.ranks, x.shape[dim] // of.ranks))
    return blocks.index_select(dim, turns[turn : turn + 1]).squeeze(dim)  # type: ignore[no-any-return]


def _shift(block: torch.Tensor, pairs: list[list[int]]) -> torch.Tensor:
    return xm.collective_permute(block, pairs)
