"""Draws the losses of examples/pretraining.

python benchmarks/pretraining_curves.py FSDP2=FOLDER FSDP2,restarted=FOLDER ... > FILE.svg
"""

from __future__ import annotations

import json
import sys
from html import escape
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 760, 340, 50, 20, 40
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728")
Row = dict[str, float]


def _rows(folder: str) -> list[Row]:
    return [json.loads(row) for row in (Path(folder) / "losses.jsonl").read_text().splitlines()]


def _line(rows: list[Row], steps: float, most: float, colour: str, dashed: bool) -> list[str]:
    """The losses of each start of the ranks, and a mark where one begins that is not the first."""

    def place(row: Row) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - 10) * row["step"] / steps
        return x, TOP + (HEIGHT - TOP - BOTTOM) * (1 - row["loss"] / most)

    drawn = []
    for start in sorted({row["restarts"] for row in rows}):
        own = [place(row) for row in rows if row["restarts"] == start]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in own)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{colour}"{dash}/>')
        if start:
            x, y = own[0]
            drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
    return drawn


def svg(runs: list[tuple[str, list[Row]]]) -> str:
    """The picture."""
    steps = max(row["step"] for _, rows in runs for row in rows)
    most = max(row["loss"] for _, rows in runs for row in rows)
    style = "svg { font: 13px sans-serif; background: white } text { fill: #333 }"
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>Losses by step: {escape(', '.join(name for name, _ in runs))}</title>",
        f"<style>{style}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for loss in range(int(most) + 1):
        y = TOP + (HEIGHT - TOP - BOTTOM) * (1 - loss / most)
        drawn.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - 10}" stroke="#ddd"/>')
        drawn.append(f'<text x="{LEFT - 20}" y="{y + 4:.1f}">{loss}</text>')
    for step in range(0, int(steps) + 1, 50):
        x = LEFT + (WIDTH - LEFT - 10) * step / steps
        drawn.append(f'<text x="{x - 8:.1f}" y="{HEIGHT - BOTTOM + 18}">{step}</text>')
    drawn.append(f'<text x="{WIDTH / 2 - 12:.0f}" y="{HEIGHT - 6}">step</text>')
    for number, (name, rows) in enumerate(runs):
        colour = COLOURS[number % len(COLOURS)]
        drawn += _line(rows, steps, most, colour, dashed=number % 2 == 1)
        y = TOP + 18 * (number + 1)
        drawn.append(f'<path d="M{WIDTH - 300} {y - 4}h24" stroke="{colour}" stroke-width="2"/>')
        drawn.append(f'<text x="{WIDTH - 270}" y="{y}">{escape(name)}</text>')
    return "\n".join([*drawn, "</svg>", ""])


if __name__ == "__main__":
    print(svg([(name, _rows(folder)) for name, folder in (a.split("=", 1) for a in sys.argv[1:])]))
