"""Random models as plain data, and the modules that they describe.

A recipe prints as what makes it again, and is the same model on every rank and device.
"""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis.strategies as st
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64}
WORDS = 3  # of a sentence


@dataclass(frozen=True)
class Layer:
    """One of KINDS. Its input has the width of what comes before."""

    kind: str
    width: int = 1  # of its output, where it may be another than that of its input
    bias: bool = True
    dtype: str = "f32"
    frozen: str = ""  # "all", "bias" or nothing
    again: bool = False  # computed again in the backward pass


@dataclass(frozen=True)
class Model:
    inputs: int
    layers: tuple[Layer, ...]
    outputs: int
    words: int = 0  # of an Embedding, which then comes first
    tied: bool = False  # the Embedding's weight is that of the output too
    seed: int = 0

    @property
    def dtypes(self) -> set[str]:
        return {"f32", *(layer.dtype for layer in self.layers)}


# Modules take what comes in the type that their parameters have just then: where a client computes
# in another precision it is not that of the recipe.


class Dense(nn.Module):
    """Also with a weight that two layers share, and used twice."""

    def __init__(self, inputs: int, layer: Layer) -> None:
        super().__init__()
        width = inputs if layer.kind in ("tied", "twice") else layer.width
        self.linear = nn.Linear(inputs, width, bias=layer.bias)
        if layer.kind == "tied":
            self.other = nn.Linear(inputs, width, bias=layer.bias)
            self.other.weight = self.linear.weight
        self.kind, self.width = layer.kind, width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.to(self.linear.weight.dtype)
        for _ in range(1 + (self.kind == "twice")):
            x = torch.tanh(self.linear(x))
        return torch.tanh(self.other(x)) if self.kind == "tied" else x


class Norm(nn.Module):
    def __init__(self, inputs: int, layer: Layer) -> None:
        super().__init__()
        # Of so large an epsilon that little differences remain little.
        self.norm = nn.LayerNorm(inputs, eps=0.1, bias=layer.bias)
        self.width = inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x.to(self.norm.weight.dtype))


class Conv(nn.Module):
    def __init__(self, inputs: int, layer: Layer) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, layer.width, 3, padding=1, bias=layer.bias)
        self.width = layer.width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.to(self.conv.weight.dtype).reshape(-1, 1, x.shape[-1])
        return self.conv(rows).mean(-1).reshape(*x.shape[:-1], self.width)


class Scale(nn.Module):
    """A parameter of no dimensions."""

    def __init__(self, inputs: int, layer: Layer) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.width = inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.scale.dtype) * self.scale


class Empty(nn.Module):
    """Parameters of no elements."""

    def __init__(self, inputs: int, layer: Layer) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.zeros(0, inputs))
        if layer.bias:
            self.bias = nn.Parameter(torch.zeros(0))
        self.width = inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.to(self.rows.dtype) + self.rows.sum(0)
        return x + self.bias.sum() if hasattr(self, "bias") else x


class Unused(nn.Module):
    def __init__(self, inputs: int, layer: Layer) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, layer.width, bias=layer.bias)
        self.width = inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Aside(nn.Module):
    """A part without gradients."""

    def __init__(self, inputs: int, layer: Layer) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, inputs, bias=layer.bias)
        self.width = inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.to(self.linear.weight.dtype)
        with torch.no_grad():
            aside = torch.tanh(self.linear(x))
        return x + aside


class Buffered(nn.Module):
    """Keeps a mean, which it takes away from what comes; and a number of calls."""

    def __init__(self, inputs: int, layer: Layer) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.width = inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Not in place: a second forward pass would change what the first one saved.
        y = x - self.mean.to(x.dtype)
        if self.training:
            with torch.no_grad():
                rows = x.detach().reshape(-1, x.shape[-1])
                self.calls += 1
                self.mean.copy_((self.mean + rows.sum(0) / 100) / 2)
        return y


KINDS = {
    "dense": Dense,
    "norm": Norm,
    "conv": Conv,
    "twice": Dense,
    "tied": Dense,
    "buffered": Buffered,
    "aside": Aside,
    "unused": Unused,
    "empty": Empty,
    "scale": Scale,
}


class Network(nn.Module):
    def __init__(self, recipe: Model) -> None:
        super().__init__()
        self.recipe = recipe
        width = recipe.inputs
        self.words = nn.Embedding(recipe.words, width) if recipe.words else None
        self.layers = nn.ModuleList()
        for layer in recipe.layers:
            module = KINDS[layer.kind](width, layer)
            width = module.width
            module.to(DTYPES[layer.dtype])
            for name, parameter in module.named_parameters():
                if layer.frozen == "all" or (layer.frozen == "bias" and name.endswith("bias")):
                    parameter.requires_grad_(False)
            self.layers.append(module)
        self.head = nn.Linear(width, recipe.inputs if recipe.tied else recipe.outputs)
        self.reset()

    @torch.no_grad()
    def reset(self) -> None:
        """The same numbers for all who have the recipe. Weights that are shared are drawn once."""
        generator = torch.Generator().manual_seed(self.recipe.seed)
        for parameter in self.parameters():
            fan = max(1, parameter.numel() // max(1, len(parameter) if parameter.dim() else 1))
            drawn = torch.randn(parameter.shape, generator=generator) / fan**0.5
            parameter.copy_(drawn if parameter.dim() else 1 + drawn / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.words is not None:
            x = self.words(x)
        for layer, module in zip(self.recipe.layers, self.layers, strict=True):
            x = checkpoint(module, x, use_reentrant=False) if layer.again else module(x)
        x = self.head(x.to(self.head.weight.dtype))
        if self.recipe.tied:
            x = x.to(self.words.weight.dtype) @ self.words.weight.t()
        return x


def batch(recipe: Model, rows: int, seed: int) -> torch.Tensor:
    """What a forward pass takes."""
    generator = torch.Generator().manual_seed(seed)
    if recipe.words:
        return torch.randint(recipe.words, (rows, WORDS), generator=generator)
    return torch.randn(rows, recipe.inputs, generator=generator)


WIDTHS = st.one_of(st.sampled_from([3, 4, 7, 8, 1, 2, 5, 37]), st.integers(1, 40))


@st.composite
def models(draw: st.DrawFn, kinds: list[str], mixes: bool = True) -> Model:
    """Of layers of these kinds; their types differ if it `mixes`."""
    dtypes = ["f32"]
    if mixes:
        dtypes = draw(st.sampled_from([["f32"], ["f32", "f32", "bf16", "f64"]]))
    layer = st.builds(
        Layer,
        kind=st.sampled_from(kinds),
        width=WIDTHS,
        bias=st.booleans(),
        dtype=st.sampled_from(dtypes),
        frozen=st.sampled_from(["", "", "", "all", "bias"]),
        again=st.sampled_from([False, False, False, True]),
    )
    words = draw(st.one_of(st.just(0), st.integers(2, 40)))
    return Model(
        inputs=draw(WIDTHS),
        layers=tuple(draw(st.lists(layer, min_size=1, max_size=4))),
        outputs=draw(WIDTHS),
        words=words,
        tied=bool(words) and draw(st.booleans()),
        seed=draw(st.integers(0, 99)),
    )
