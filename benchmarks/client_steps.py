"""Writes docs/steps.md: what whole steps of training stacks become in the programs of compilers.

    PYTHONPATH=python python benchmarks/client_steps.py [target ...]

Each example of examples/clients, unmodified, as one rank of a dry run (`txcc inspect --rank`), and
compiled by the target's own compiler. It takes some fifteen minutes. With targets it prints their
part, and writes nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/steps.md"
LIMIT_S = 400
RANK = 1
TARGETS = ("tpu:v5e:2x4", "tpu:v5e:16x16", "tpu:v5p:4x4x4", "gpu:h100x8")
CLIENTS = {  # the script, its step, its own options
    "DDP": "ddp.py 3",
    "DDP, two batches a step": "ddp.py 3 --accumulate=2",
    "ZeroRedundancyOptimizer": "zero_optimizer.py 3",
    "FSDP1": "fsdp1.py 2",
    "FSDP2": "fsdp2.py 2",
    "FSDP2, bf16": "fsdp2.py 2 --bf16=1",
    "FSDP2, HSDP": "fsdp2.py 2 --replicas=2",
    "DTensor TP": "dtensor_tp.py 2",
    "DTensor TP x FSDP": "dtensor_tp.py 2 --tp=2 --fsdp=1",
}
_HEAD = """\
# Steps of training stacks, as compilers have them

Written by `benchmarks/client_steps.py`: examples of `examples/clients`, unmodified, as rank {rank}
of a dry-run world ([inspect.md](inspect.md#one-rank-of-a-script)), compiled by each target's own
compiler. The models are small, so these rows say what becomes of the calls, and not how fast a
large model is. How programs of layers compare with JAX's stands in [compiled.md](compiled.md).

- traced: collectives that the step calls; compiled: collective instructions in the program, of
  which *overlapped* compute beside them, and *waiting* do not.
- link: bytes of the step on the busiest link; fewest: the fewest that these collectives need on
  that topology ([inspect.md](inspect.md)). That is counted of each by itself: broadcasts that a
  compiler combines can come below it.
- HBM: arguments, outputs that take no argument's place, and temporaries, of one chip.
"""
_COLUMNS = ("traced", "compiled", "overlapped", "waiting", "link", "fewest", "ratio", "HBM")


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def _row(said: dict[str, Any]) -> list[str]:
    if said["failure"]:
        return [f"failed: {said['failure'].splitlines()[0][:80]}"]
    summary, memory = said["summary"], said["memory"] or {}
    link, fewest = summary["link_bytes"], summary["fewest_link_bytes"]
    held = memory.get("arguments", 0) + memory.get("outputs", 0) + memory.get("temporaries", 0)
    figures = [summary[name] for name in ("traced", "instructions", "overlapped", "waits")]
    known = link is not None and fewest
    return [
        *map(str, figures),
        "-" if link is None else _size(link),
        _size(fewest) if fewest else "-",
        f"{link / fewest:.2f}" if known else "-",
        _size(held - memory.get("aliased", 0)) if memory else "-",
    ]


def _inspected(words: list[str], target: str) -> list[str]:
    script, step, *options = words
    command = [sys.executable, "-m", "txcc", "inspect", f"--rank={RANK}", f"--target={target}"]
    command += [f"--step={step}", "--timeout=300", "--format=json"]
    command += [str(ROOT / "examples/clients" / script), "--", *options]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return [f"not in {LIMIT_S} s"]
    if not done.stdout.strip():
        last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
        return [f"refused: {last[:120]}"]
    return _row(json.loads(done.stdout)[0])


def part(target: str) -> str:
    """The table of a target."""
    lines = [
        f"## {target}",
        "",
        f"| | {' | '.join(_COLUMNS)} |",
        "|---" * (len(_COLUMNS) + 1) + "|",
    ]
    for name, words in CLIENTS.items():
        row = _inspected(words.split(), target)
        row += [""] * (len(_COLUMNS) - len(row))
        lines.append(f"| {name} | {' | '.join(row)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page, or print parts."""
    asked = sys.argv[1:]
    parts = [part(target) for target in asked or TARGETS]
    if not asked:
        PAGE.write_text("\n".join((_HEAD.format(rank=RANK), *parts)))


if __name__ == "__main__":
    main()
