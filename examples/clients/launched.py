"""What the examples of torch_xla's own training code share: model, data, and how ranks start.

Ranks are threads on four virtual CPU devices, or on as many as `--ranks` says; under torchrun each
is a process, and it says how many. `--plain` trains the same model on the batches of all ranks
together, in plain torch on the CPU: the losses are to be the same.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

import torch
from torch import nn

os.environ.setdefault("TORCH_XLA_CC_FALLBACK", "allow")

RANKS = int(os.environ.get("WORLD_SIZE", "4"))  # unless --ranks says another number
ROWS = 16  # of a rank's batch


class Block(nn.Module):
    """A residual block, of which FSDP wraps each."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x + mlp(norm(x))"""
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Model(nn.Module):
    """Three blocks and a head."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(width) for _ in range(3)])
        self.head = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The head's view of the blocks' result."""
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def model() -> Model:
    """The same on every rank. Threads share a generator of random numbers, so each has its own."""
    made = Model()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 10)
    return made


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets of a step, of all ranks."""
    x = torch.randn(RANKS * ROWS, 32, generator=torch.Generator().manual_seed(step % 5))
    return x, x[:, :4].sin()


def part(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Those of one rank."""
    x, y = batch(step)
    return x[rank * ROWS : (rank + 1) * ROWS], y[rank * ROWS : (rank + 1) * ROWS]


def plain(steps: int, clip: bool) -> list[float]:
    """The losses of one process."""
    trained = model()
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(trained(x), y)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(
    train: Callable[[int, argparse.Namespace], list[float]], description: str, **defaults: int
) -> None:
    """Run `train(rank, options)` on all ranks, or `plain`; print the losses.

    `defaults` are more options that are numbers, such as `reshard=1`.
    """
    global RANKS
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--plain", action="store_true", help="one process, without XLA")
    for name, value in {"steps": 30, "ranks": RANKS, **defaults}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    options = parser.parse_args()
    if "RANK" in os.environ and options.ranks != RANKS and not options.plain:
        parser.error(f"--ranks={options.ranks}, and torchrun has started {RANKS}")
    RANKS = options.ranks
    if options.plain:
        losses = plain(options.steps, clip=bool(getattr(options, "clip", True)))
    else:
        import torch_xla_cc

        torch_xla_cc.install()
        losses = torch_xla_cc.launch(train, (options,), None if "RANK" in os.environ else RANKS)[0]
    for step, loss in enumerate(losses):
        print(f"step {step}: loss {loss!r}", flush=True)
