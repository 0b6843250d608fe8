"""A transformer block with tensor and sequence parallelism, after Megatron's scheme.

Between the parallel regions every rank holds a part of the sequence. A region starts with an
all_gather of the sequence and ends with a reduce_scatter of the partial sums; going backward it is
the other way round. Layer norms work on the local part of the sequence, so the gradients of their
weights, which every rank holds in full, are summed over the ranks at the end of the step.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch.nn import functional as F

from torch_xla_cc import xla_model as xm

SEQUENCE = 0  # tensors are [sequence, batch, features]


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of the block."""

    sequence: int = 64
    batch: int = 4
    features: int = 64
    heads: int = 8
    hidden: int = 256


class GatherSequence(torch.autograd.Function):
    """all_gather of the sequence; backward, a reduce_scatter of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return xm.all_gather(x, SEQUENCE)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return xm.reduce_scatter(xm.REDUCE_SUM, grad, scatter_dim=SEQUENCE)


class ScatterSequence(torch.autograd.Function):
    """reduce_scatter of partial sums; backward, an all_gather of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return xm.reduce_scatter(xm.REDUCE_SUM, x, scatter_dim=SEQUENCE)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return xm.all_gather(grad, SEQUENCE)


def full_weights(sizes: Sizes) -> dict[str, torch.Tensor]:
    """The block's weights, whole, the same on every call."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * shape[-1] ** -0.5

    features, hidden = sizes.features, sizes.hidden
    return {
        "norm1": torch.ones(features),
        "query": normal(features, features),
        "key": normal(features, features),
        "value": normal(features, features),
        "projection": normal(features, features),
        "norm2": torch.ones(features),
        "up": normal(hidden, features),
        "down": normal(features, hidden),
    }


# How each weight [out, in] is cut: by its rows (column parallel), by its columns, or not at all.
_CUT = {"query": 0, "key": 0, "value": 0, "projection": 1, "up": 0, "down": 1}


def shard(weights: dict[str, torch.Tensor], rank: int, ranks: int) -> dict[str, torch.Tensor]:
    """The part of the weights that a rank holds."""
    return {
        name: weight.chunk(ranks, _CUT[name])[rank].contiguous() if name in _CUT else weight.clone()
        for name, weight in weights.items()
    }


class Block(torch.nn.Module):
    """One transformer block. With one rank there are no collectives in it."""

    def __init__(self, sizes: Sizes, rank: int, ranks: int) -> None:
        super().__init__()
        self.ranks = ranks
        self.heads = sizes.heads // ranks
        self.weights = torch.nn.ParameterDict(shard(full_weights(sizes), rank, ranks))

    def _enter(self, x: torch.Tensor) -> torch.Tensor:
        return GatherSequence.apply(x) if self.ranks > 1 else x

    def _leave(self, x: torch.Tensor) -> torch.Tensor:
        return ScatterSequence.apply(x) if self.ranks > 1 else x

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weights[name])

    def _attention(self, x: torch.Tensor) -> torch.Tensor:
        sequence, batch, _ = x.shape

        def split(name: str) -> torch.Tensor:  # [batch, heads, sequence, features of a head]
            y = F.linear(x, self.weights[name]).reshape(sequence, batch, self.heads, -1)
            return y.permute(1, 2, 0, 3)

        query, key, value = split("query"), split("key"), split("value")
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        mixed = scores.softmax(-1) @ value
        merged = mixed.permute(2, 0, 1, 3).reshape(sequence, batch, -1)
        return F.linear(merged, self.weights["projection"])

    def _mlp(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(F.gelu(F.linear(x, self.weights["up"])), self.weights["down"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self._leave(self._attention(self._enter(self._norm(x, "norm1"))))
        return x + self._leave(self._mlp(self._enter(self._norm(x, "norm2"))))

    def sum_replicated_gradients(self) -> None:
        """Sum the gradients of the weights that every rank holds in full."""
        if self.ranks > 1:
            whole = [self.weights[name].grad for name in ("norm1", "norm2")]
            xm.all_reduce(xm.REDUCE_SUM, whole)
