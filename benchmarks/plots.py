"""Plots as SVG files without scripts, fonts or network: bars, dots beside a line, curves.

They follow the reader's light or dark scheme. Series differ in colour and in form, and every plot
has a title and a description, for those who do not see it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, TOP = 760, 56, 18, 78
_STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1d2330 }
  .title { font-size: 16px; font-weight: 600 } .small { font-size: 12px; fill: #566073 }
  .end { text-anchor: end } .middle { text-anchor: middle }
  .panel { fill: #fff; stroke: #c9ced8 } .grid { stroke: #e3e6ee } .one { stroke: #7b869c }
  .a { --c: #3f51b5 } .b { --c: #d9480f } .c { --c: #0b7a53 } .d { --c: #8e24aa }
  .fill { fill: var(--c) } .stroke { stroke: var(--c); fill: none; stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6e9f0 } .small { fill: #a3adc2 } .panel { fill: #1b1f2a; stroke: #3a4255 }
    .grid { stroke: #2f3545 } .one { stroke: #8d98b0 }
    .a { --c: #8c9eff } .b { --c: #ff8a50 } .c { --c: #4cc38a } .d { --c: #ce93d8 }
  }
"""
_CLASSES = "abcd"


@dataclass(frozen=True)
class Series:
    """A value for each group, or None where there is none."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Curve:
    """Points in pieces: each begins with a dot, but for the first."""

    name: str
    pieces: Sequence[Sequence[tuple[float, float]]]
    dashed: bool = False


def bars(
    title: str, what: str, groups: Sequence[str], series: Sequence[Series], height: int = 320
) -> str:
    """Upright, side by side, on a logarithmic scale."""
    bottom = height - 52
    found = [value for one in series for value in one.values if value]
    low, high = 10 ** math.floor(math.log10(min(found))), max(found) * 1.1
    y = _log(low, high, bottom, TOP)
    room = (WIDTH - LEFT - RIGHT) / len(groups)
    width = min(28.0, room * 0.8 / len(series))
    drawn = _grid(low, high, y, upright=False, end=bottom)
    for place, group in enumerate(groups):
        middle = LEFT + room * (place + 0.5)
        drawn += _words(group, middle, bottom + 18, room)
        for number, one in enumerate(series):
            if value := one.values[place]:
                x = middle + (number - len(series) / 2) * width
                drawn.append(
                    f'<rect class="fill {_CLASSES[number]}" x="{x + 1:.1f}" y="{y(value):.1f}" '
                    f'width="{width - 2:.1f}" height="{bottom - y(value):.1f}"><title>'
                    f"{escape(f'{group}, {one.name}: {value:g} {what}')}</title></rect>"
                )
    return _page(
        title, f"{what}, logarithmic; less is better", [s.name for s in series], height, drawn
    )


def dots(title: str, what: str, groups: Sequence[str], series: Sequence[Series]) -> str:
    """A row for each group: where its ratios lie beside 1, on a logarithmic scale."""
    left, row = 30 + 7 * max(map(len, groups)), 30
    height = TOP + row * len(groups) + 44
    found = [value for one in series for value in one.values if value]
    low, high = min(*found, 0.5) / 1.1, max(*found, 2) * 1.1
    x = _log(low, high, left, WIDTH - RIGHT)
    bottom = height - 36
    drawn = _grid(low, high, x, upright=True, end=bottom)
    drawn.append(f'<path class="one" d="M{x(1):.1f} {TOP - 8}V{bottom}" stroke-width="2"/>')
    for place, group in enumerate(groups):
        y = TOP + row * (place + 0.5)
        drawn.append(f'<text class="end" x="{left - 12}" y="{y + 4:.1f}">{escape(group)}</text>')
        for number, one in enumerate(series):
            if value := one.values[place]:
                says = escape(f"{group}, {one.name}: {value:g}")
                aside = 4 * (number - (len(series) - 1) / 2)  # equal ones are seen
                drawn.append(_mark(number, x(value), y + aside, says))
    return _page(title, what, [s.name for s in series], height, drawn)


def curves(title: str, x_says: str, y_says: str, found: Sequence[Curve], height: int = 360) -> str:
    """From 0 on, on plain scales."""
    bottom = height - 52
    points = [point for one in found for piece in one.pieces for point in piece]
    x = _plain(max(a for a, _ in points), LEFT, WIDTH - RIGHT)
    y = _plain(max(b for _, b in points), bottom, TOP)
    drawn = []
    for tick in _round_steps(max(b for _, b in points)):
        drawn.append(f'<path class="grid" d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}"/>')
        drawn.append(
            f'<text class="small end" x="{LEFT - 8}" y="{y(tick) + 4:.1f}">{tick:g}</text>'
        )
    for tick in _round_steps(max(a for a, _ in points)):
        drawn.append(
            f'<text class="small middle" x="{x(tick):.1f}" y="{bottom + 18}">{tick:g}</text>'
        )
    drawn.append(
        f'<text class="small middle" x="{WIDTH / 2:.0f}" y="{height - 12}">{escape(x_says)}</text>'
    )
    for number, one in enumerate(found):
        dash = ' stroke-dasharray="5 4"' if one.dashed else ""
        for begins, piece in enumerate(one.pieces):
            line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in piece)
            drawn.append(f'<polyline class="stroke {_CLASSES[number]}" points="{line}"{dash}/>')
            if begins:
                drawn.append(_mark(0, x(piece[0][0]), y(piece[0][1]), "goes on", _CLASSES[number]))
    return _page(title, y_says, [one.name for one in found], height, drawn)


_Scale = Callable[[float], float]


def _log(low: float, high: float, begin: float, end: float) -> _Scale:
    return lambda value: begin + (end - begin) * math.log(value / low) / math.log(high / low)


def _plain(most: float, begin: float, end: float) -> _Scale:
    return lambda value: begin + (end - begin) * value / most


def _grid(low: float, high: float, at: _Scale, upright: bool, end: float) -> list[str]:
    """Of a logarithmic scale: 1, 2 and 5 of each power of ten, or the powers alone."""
    steps = (1, 2, 5) if high / low < 200 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    drawn = []
    for tick in (step * 10.0**power for power in powers for step in steps):
        if not low <= tick <= high:
            continue
        place = at(tick)
        if upright:
            drawn.append(f'<path class="grid" d="M{place:.1f} {TOP - 8}V{end}"/>')
            drawn.append(
                f'<text class="small middle" x="{place:.1f}" y="{end + 18}">{tick:g}</text>'
            )
        else:
            drawn.append(f'<path class="grid" d="M{LEFT} {place:.1f}H{WIDTH - RIGHT}"/>')
            drawn.append(
                f'<text class="small end" x="{LEFT - 8}" y="{place + 4:.1f}">{tick:g}</text>'
            )
    return drawn


def _round_steps(most: float) -> list[float]:
    """About six of them, from 0."""
    rough = most / 6
    power = 10 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough)
    return [step * i for i in range(int(most / step) + 1)]


def _words(text: str, x: float, y: float, room: float) -> list[str]:
    """In lines that fit."""
    lines = [""]
    for word in text.replace("_", "_ ").split(" "):
        joined = (lines[-1] + ("" if lines[-1].endswith("_") else " ") + word).strip()
        if len(joined) * 6.6 <= room or not lines[-1]:
            lines[-1] = joined
        else:
            lines.append(word)
    return [
        f'<text class="small middle" x="{x:.1f}" y="{y + 14 * i:.1f}">{escape(line)}</text>'
        for i, line in enumerate(lines)
    ]


def _mark(form: int, x: float, y: float, says: str, of: str = "") -> str:
    shapes = (
        f'<circle class="fill {{}}" cx="{x:.1f}" cy="{y:.1f}" r="5">',
        f'<rect class="fill {{}}" x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9">',
        f'<path class="fill {{}}" d="M{x - 6:.1f} {y:.1f}l6 -6l6 6l-6 6z">',
        f'<path class="fill {{}}" d="M{x - 5:.1f} {y + 5:.1f}h10l-5 -10z">',
    )
    shape = shapes[form % len(shapes)].format(of or _CLASSES[form])
    return f"{shape}<title>{says}</title></{shape[1:].partition(' ')[0]}>"


def _page(title: str, what: str, names: Sequence[str], height: int, drawn: Sequence[str]) -> str:
    legend, x = [], 24.0
    for number, name in enumerate(names):
        legend.append(_mark(number, x, 54, escape(name)))
        legend.append(f'<text class="small" x="{x + 12:.0f}" y="58">{escape(name)}</text>')
        x += 34 + 6.4 * len(name)
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="t d">',
        f'<title id="t">{escape(title)}</title>',
        f'<desc id="d">{escape(what)}: {escape(", ".join(names))}</desc>',
        f"<style>{_STYLE}</style>",
        f'<rect class="panel" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>',
        f'<text class="title" x="18" y="30">{escape(title)}</text>',
        f'<text class="small end" x="{WIDTH - 18}" y="58">{escape(what)}</text>',
    ]
    return "\n".join([*head, *legend, *drawn, "</svg>", ""])
