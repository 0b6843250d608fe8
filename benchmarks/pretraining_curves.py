"""Draws the losses of examples/pretraining.

python benchmarks/pretraining_curves.py FSDP2=FOLDER FSDP2,restarted=FOLDER ... > FILE.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import plots


def curve(name: str, folder: Path, dashed: bool = False) -> plots.Curve:
    """The losses of a run, with a piece for each start of its ranks."""
    rows = [json.loads(row) for row in (folder / "losses.jsonl").read_text().splitlines()]
    starts = sorted({row["restarts"] for row in rows})
    pieces = [
        [(row["step"], row["loss"]) for row in rows if row["restarts"] == start] for start in starts
    ]
    return plots.Curve(name, pieces, dashed)


def svg(runs: list[tuple[str, str]]) -> str:
    """The picture, of names and folders."""
    found = [curve(name, Path(folder), place % 2 == 1) for place, (name, folder) in enumerate(runs)]
    return plots.curves("Losses by step", "step", "loss; dots: training goes on", found)


if __name__ == "__main__":
    print(svg([(name, folder) for name, folder in (one.split("=", 1) for one in sys.argv[1:])]))
