"""docs/shapes.md, from what shapes were measured."""

from __future__ import annotations

from torch_xla_cc.capabilities import _shapes
from torch_xla_cc.capabilities._shapes import FAMILIES, OPS, SIZES, Found, Probe

_INTRO = """\
# What is kept, by shape and size

A compiler that takes an instruction may still turn it into another one, by its shape and size.
Look up here which ones it keeps.

Written by `python tools/capabilities`, from what `python -m torch_xla_cc.capabilities shapes`
found on {date}, with libtpu {libtpu} and jax-cuda12-pjrt {cuda}; do not edit.
The calls are of the world in f32, lowered as they are for that target and compiled by its real
compiler, with no such device. The size is that of the whole: of all_gather's result, and of the
others' operand.

- **kept**: the compiled program has the instruction, or its fusion. What stands behind it is the
  form in which the lowering gave it to the compiler ([spec.md](spec.md#forms-that-a-tpu-keeps)).
- **padded**: it has, but what is sent is padded to whole tiles, which are much of something small.
- Otherwise it says what the compiler has made of it. A small one is left to the compiler, where
  that is not slower by the model of spec.md.
- A number behind it are the bytes on the wire, as parts of the fewest possible, if they are 1.06 or
  more.

Shapes have about so many elements. "Odd" ones have an odd number of rows or elements on each rank.
"Last of two" are cut along the last of two dimensions, "middle of three" along the second of three.
"""

_MORE = 1.06  # bytes, as parts of the fewest possible, that are said


def _short(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def _cell(probe: Probe, found: Found) -> str:
    text = found.becomes
    if _shapes.kept(probe.op, found.becomes):
        text = "padded" if found.wire >= _MORE else "kept"
        text += f", {found.way}" if found.way else ""
    return f"{text} ({found.wire:g})" if found.wire >= _MORE else text


def page() -> str:
    """The text of the page."""
    about, results = _shapes.load()
    intro = _INTRO.format(date=about["date"], libtpu=about["libtpu"], cuda=about["jax-cuda12-pjrt"])
    parts = [intro]
    for target, found in results.items():
        lines = ["| | " + " | ".join(map(_short, SIZES)) + " |", "|---" * (len(SIZES) + 1) + "|"]
        for op in OPS:
            rows: dict[tuple[str, ...], list[str]] = {}
            for family in FAMILIES:
                some = [Probe(op, family, size) for size in SIZES]
                rows.setdefault(tuple(_cell(one, found[one]) for one in some), []).append(family)
            for cells, families in rows.items():
                names = "all shapes" if len(families) == len(FAMILIES) else "; ".join(families)
                lines.append(f"| {op}: {names} | " + " | ".join(cells) + " |")
        parts.append(f"## {target}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)
