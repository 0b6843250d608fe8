"""Trains a tensor and sequence parallel transformer block on four virtual XLA devices.

    make demo        or        python examples/demo.py

Prints the loss beside that of the same block on one device, then every collective of a step.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections import Counter
from collections.abc import Callable

import torch
import torch_xla
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from tensor_parallel import SEQUENCE, Block, Sizes

import torch_xla_cc
from torch_xla_cc import xla_model as xm

LEARNING_RATE = 0.05
# The two runs add the same f32 numbers in another order: the contraction of the row parallel
# layers is cut in four, and XLA:CPU sums a reduce-scatter rank by rank. A step's error is some
# units in the last place (6e-8), and training carries it on.
TOLERANCE = 1e-5


def train(
    rank: int, ranks: int, steps: int, sizes: Sizes, progress: Callable[[int], None]
) -> tuple[list[float], list[torch_xla_cc.Call]]:
    """The losses of a run, and the collectives of its last step, as seen by one rank."""
    device = torch_xla.device()
    block = Block(sizes, rank, ranks).to(device)
    optimizer = torch.optim.SGD(block.parameters(), lr=LEARNING_RATE)
    generator = torch.Generator().manual_seed(1)
    shape = (sizes.sequence, sizes.batch, sizes.features)
    inputs, wanted = (
        torch.randn(shape, generator=generator).chunk(ranks, SEQUENCE)[rank].to(device)
        for _ in range(2)
    )
    losses: list[float] = []
    calls: list[torch_xla_cc.Call] = []

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (block(inputs) - wanted).pow(2).sum() / (wanted.numel() * ranks)
        loss.backward()
        block.sum_replicated_gradients()
        optimizer.step()
        whole = xm.all_reduce(xm.REDUCE_SUM, loss.detach()) if ranks > 1 else loss.detach()
        torch_xla.sync()
        return whole

    for index in range(steps):
        if rank == 0 and index == steps - 1:
            with torch_xla_cc.record() as calls:
                loss = step()
        else:
            loss = step()
        losses.append(loss.item())
        progress(index + 1)
    return losses, [call for call in calls if call.rank == rank]


def rank_main(
    rank: int, ranks: int, steps: int, progress: Callable[[str, int], None], turn: threading.Barrier
) -> tuple[list[float], list[float], list[torch_xla_cc.Call]]:
    """What each rank runs: its part of the parallel block, and rank 0 the whole block alone."""
    sizes = Sizes()
    show = progress if rank == 0 else lambda *_: None
    parallel, calls = train(rank, ranks, steps, sizes, lambda n: show("4 devices", n))
    turn.wait()
    alone: list[float] = []
    if rank == 0:
        alone, _ = train(0, 1, steps, sizes, lambda n: show("1 device", n))
    turn.wait()
    return parallel, alone, calls


def collectives_table(calls: list[torch_xla_cc.Call], ranks: int) -> Table:
    """One line for each kind of collective of the step."""
    table = Table(title="Collectives of one step, per rank")
    for name in ("", "op", "operands", "bytes", "groups", "lowered to", "issued at"):
        right = name in ("", "bytes")
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    world = (tuple(range(ranks)),)
    alike = Counter(
        (c.op, ", ".join(c.operands), c.bytes, c.groups, c.rule, c.opcodes, f"{c.file}:{c.line}")
        for c in calls
    )
    for (op, operands, size, groups, rule, opcodes, site), count in alike.items():
        where = "world" if groups == world else str(groups)
        kinds = ", ".join(f"{n} {opcode}" for opcode, n in Counter(opcodes).items())
        place = site.rpartition("/")[2]
        table.add_row(f"{count}x", op, operands, f"{size:,}", where, f"{rule}: {kinds}", place)
    total = sum(call.bytes for call in calls)
    table.caption = f"{len(calls)} calls, {total:,} bytes of operands"
    return table


def main() -> int:
    """Run the demo; 0 if the losses agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--ranks", type=int, default=4, choices=(2, 4, 8))
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)  # a pipe has no width
    columns = TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=console) as bar:
        tasks = {
            name: bar.add_task(name, total=arguments.steps) for name in ("4 devices", "1 device")
        }
        results = torch_xla_cc.launch(
            rank_main,
            (
                arguments.ranks,
                arguments.steps,
                lambda name, n: bar.update(tasks[name], completed=n),
                threading.Barrier(arguments.ranks),
            ),
            arguments.ranks,
        )
    parallel, alone, calls = results[0]
    losses = Table(title="Loss")
    for name in ("step", f"{arguments.ranks} devices", "1 device", "relative difference"):
        losses.add_column(name, justify="right")
    worst = 0.0
    for index, (one, other) in enumerate(zip(parallel, alone, strict=True)):
        difference = abs(one - other) / abs(other)
        worst = max(worst, difference)
        if index % max(1, arguments.steps // 6) == 0 or index == arguments.steps - 1:
            losses.add_row(str(index), f"{one:.7f}", f"{other:.7f}", f"{difference:.1e}")
    console.print(losses)
    console.print(collectives_table(calls, arguments.ranks))
    agree = worst <= TOLERANCE and all(rank[0] == parallel for rank in results)
    verdict = "equal" if agree else "NOT equal"
    console.print(
        f"The losses are {verdict}: the largest relative difference is {worst:.1e}, the tolerance "
        f"{TOLERANCE:.0e} (the same f32 numbers are added in another order)."
    )
    return 0 if agree else 1


if __name__ == "__main__":
    raise SystemExit(main())
