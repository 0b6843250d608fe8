"""Draws the figures that pages have in tables: docs/img/bench_*.svg.

    python benchmarks/pictures.py

benchmarks/run.py --write and benchmarks/compiled.py --write do it as well, so that a picture shows
what its page says; tests/python/test_pictures.py compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import plots

DOCS = Path(__file__).parents[1] / "docs"
HOST = "Host cost of a call, one device"
GLOO = "Four processes on CPU against gloo on CPU tensors"
JAX = "Four CPU devices against jax.shard_map"
LINK = "Bytes on the busiest link, ratio to JAX's"
Rows = Sequence[dict[str, str]]


def table(page: str, title: str) -> Rows:
    """The table below a heading of a page. Columns of one name get 2, 3, ... behind it."""
    found = re.search(rf"^## {re.escape(title)}\n\n(?:!.*\n\n)?((?:\|.*\n)+)", page, re.M)
    if not found:
        raise ValueError(f"there is no table below the heading {title!r}")
    lines = [
        [cell.strip() for cell in line.strip("|\n").split("|")] for line in found[1].splitlines()
    ]
    names: list[str] = []
    for name in lines[0]:
        names.append(f"{name} {names.count(name) + 1}" if name in names else name)
    return [dict(zip(names, cells, strict=True)) for cells in lines[2:]]


def number(text: str) -> float | None:
    """None for "-", where nothing was measured."""
    return None if text == "-" else float(text.replace(",", ""))


def _series(name: str, rows: Rows, column: str) -> plots.Series:
    return plots.Series(name, [number(row[column]) for row in rows])


def host_cost(page: str) -> str:
    """Of a call."""
    rows = [row for row in table(page, HOST) if "(" not in row["op"]]
    return plots.bars(
        "Host cost of a call, one CPU device",
        "microseconds",
        [row["op"] for row in rows],
        [
            _series("torch_xla_cc", rows, "us, ours"),
            _series("torch_xla", rows, "us, torch_xla"),
        ],
    )


def against_gloo(page: str) -> str:
    """Between processes."""
    rows = table(page, GLOO)
    return plots.bars(
        "Four CPU processes: xla_cc beside gloo on CPU tensors",
        "milliseconds",
        [f"{row['op'].split('_tensor')[0]} {row['size a rank']}" for row in rows],
        [
            _series("xla_cc", rows, "ms, ours"),
            _series("xla_cc, calls not compared", rows, "ms, ours, not compared"),
            _series("gloo", rows, "ms, gloo"),
        ],
        height=360,
    )


def against_jax(page: str) -> str:
    """A step of one collective."""
    rows = table(page, JAX)
    sizes = list(dict.fromkeys(row["size a device"] for row in rows))
    ops = list(dict.fromkeys(row["op"] for row in rows))
    by = {(row["op"], row["size a device"]): number(row["ratio"]) for row in rows}
    return plots.dots(
        "A step of one collective on four CPU devices, beside jax.shard_map",
        "time, ratio to JAX's; less is better",
        ops,
        [plots.Series(f"{size} a device", [by.get((op, size)) for op in ops]) for size in sizes],
    )


def link_bytes(page: str) -> str:
    """Of compiled programs."""
    rows = table(page, LINK)
    shown = ("tpu:v5e:2x4", "tpu:v5e:16x16", "tpu:v4:4x4x4", "gpu:h100x8")
    return plots.dots(
        "Compiled programs: bytes on the busiest link, beside JAX's",
        "bytes, ratio to JAX's; less is better",
        [row["program"] for row in rows],
        [_series(target, rows, target) for target in shown],
    )


# By the heading below which it stands: the page that it is in, the picture, what it shows in words,
# and what draws it.
PICTURES: dict[str, tuple[str, str, str, Callable[[str], str]]] = {
    HOST: (
        "benchmarks.md",
        "bench_host_cost.svg",
        "Microseconds of a call by torch_xla_cc and by torch_xla, for five collectives",
        host_cost,
    ),
    GLOO: (
        "benchmarks.md",
        "bench_gloo.svg",
        "Milliseconds of a call by xla_cc and by gloo, for four collectives of 1 and 64 MiB",
        against_gloo,
    ),
    JAX: (
        "benchmarks.md",
        "bench_jax.svg",
        "The time of a step with one collective, as a ratio to JAX's, for three sizes",
        against_jax,
    ),
    LINK: (
        "compiled.md",
        "bench_link_bytes.svg",
        "Bytes on the busiest link of seven programs, as a ratio to JAX's, on four targets",
        link_bytes,
    ),
}


def shown(heading: str) -> list[str]:
    """The lines of Markdown that show the picture of a heading, if it has one."""
    if heading not in PICTURES:
        return []
    _, name, words, _ = PICTURES[heading]
    return ["", f"![{words}](img/{name})"]


def draw(of_page: str = "") -> None:
    """Those of a page, or all."""
    for page, name, _, picture in PICTURES.values():
        if of_page in ("", page):
            (DOCS / "img" / name).write_text(picture((DOCS / page).read_text()))


if __name__ == "__main__":
    draw()
