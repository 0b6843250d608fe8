"""What both trainings share: the text, the model's sizes, the schedule, checkpoints, and the log.

Each is one rank's program, for torchrun. It begins where the last checkpoint in --folder was made,
so that `torchrun --max-restarts=3` goes on when a rank is lost.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from pydoc_data import topics  # what Python ships: some 466 kB of English
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch_xla

import torch_xla_cc.distributed
from torch_xla_cc.adapters import optimizers

VOCABULARY, WIDTH, HEADS, LENGTH = 256, 320, 4, 64  # with 8 layers 10 million parameters
BATCH = 4  # sequences a step, of all ranks
RATE, WARM_UP = 1e-3, 30

_TEXT = torch.frombuffer(
    bytearray("\n".join(topics.topics[name] for name in sorted(topics.topics)).encode()),
    dtype=torch.uint8,
)


class Training(NamedTuple):
    """A run of this rank."""

    device: torch.device
    layers: int
    steps: int
    every: int  # steps between checkpoints
    folder: Path


def begin(description: str) -> Training:
    """Join the world."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--folder", type=Path, default=Path("pretraining"))
    options = parser.parse_args()
    torch_xla_cc.install()
    optimizers.install()
    dist.init_process_group("cpu:gloo,xla:xla_cc")
    torch.manual_seed(1)
    return Training(
        torch_xla.device(), options.layers, options.steps, options.save_every, options.folder
    )


def batch(step: int, part: int, parts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes of the text and those that follow them: this part of the step's sequences."""
    if BATCH % parts:
        raise ValueError(f"{parts} data parallel ranks, but they must divide {BATCH} sequences")
    places = torch.Generator().manual_seed(step)
    starts = torch.randint(len(_TEXT) - LENGTH - 1, (BATCH,), generator=places)
    rows = [_TEXT[start : start + LENGTH + 1] for start in starts.tolist()]
    own = torch.stack(rows).long().chunk(parts)[part]
    return own[:, :-1].contiguous(), own[:, 1:].contiguous()


def rate(step: int, steps: int) -> float:
    """Of learning, to be multiplied by RATE: a warm-up, then half a cosine."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - WARM_UP) / max(1, steps - WARM_UP)))


def train(
    training: Training,
    step_once: Callable[[int], torch.Tensor],
    save: Callable[[Path], None],
    load: Callable[[Path], None],
) -> None:
    """All steps from the last checkpoint on; the loss of each goes into losses.jsonl."""
    folder, rank = training.folder, dist.get_rank()
    folder.mkdir(parents=True, exist_ok=True)
    made = sorted(folder.glob("step-*"))
    first = 0
    if made:
        first = int(made[-1].name.removeprefix("step-"))
        load(made[-1])
    for step in range(first, training.steps):
        began = time.perf_counter()
        loss = step_once(step).item()
        if rank == 0:
            row = {
                "step": step,
                "loss": loss,
                "seconds": time.perf_counter() - began,
                "restarts": int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
            }
            with (folder / "losses.jsonl").open("a") as log:
                log.write(json.dumps(row) + "\n")
        if (step + 1) % training.every == 0:
            _save(folder, step + 1, save)
    dist.barrier()
    dist.destroy_process_group()


def _save(folder: Path, step: int, save: Callable[[Path], None]) -> None:
    """Under another name until it is whole: a rank may be lost at any time."""
    unfinished = folder / f"unfinished-{step:06d}"
    if dist.get_rank() == 0:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
    dist.barrier()
    save(unfinished)
    dist.barrier()
    if dist.get_rank() == 0:
        unfinished.rename(folder / f"step-{step:06d}")
    dist.barrier()
