"""Plots that benchmarks write show what their pages say."""

import importlib
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def pictures(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("pictures")


@pytest.fixture
def plots(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("plots")


def test_pictures_are_of_the_tables_of_their_pages(pictures):
    """After a change of either: python benchmarks/pictures.py"""
    for page, name, _, picture in pictures.PICTURES.values():
        drawn = picture((ROOT / "docs" / page).read_text())
        assert (ROOT / "docs/img" / name).read_text() == drawn, name


def test_pages_show_them_where_benchmarks_write_them(pictures):
    for heading, (page, *_) in pictures.PICTURES.items():
        lines = "\n".join(["", f"## {heading}", *pictures.shown(heading), "", "|"])
        assert lines in (ROOT / "docs" / page).read_text()


def test_a_table_that_is_gone_is_an_error(pictures):
    with pytest.raises(ValueError, match="no table below the heading"):
        pictures.host_cost("# Benchmarks\n")


def shapes(drawing, kind):
    return [
        one
        for one in ElementTree.fromstring(drawing).iter(f"{SVG}{kind}")
        if one.find(f"{SVG}title") is not None
    ]


def test_bars_are_as_high_as_their_figures(plots):
    """On a scale of logarithms: equal ratios are equal differences. None is no bar."""
    series = [plots.Series("a", [1.0, 10.0]), plots.Series("b & c", [100.0, None])]
    drawn = plots.bars("A < B", "ms", ["one", "two"], series)
    bars = shapes(drawn, "rect")
    heights = {bar.find(f"{SVG}title").text: float(bar.get("height", 0)) for bar in bars}
    assert heights.keys() >= {"one, a: 1 ms", "two, a: 10 ms", "one, b & c: 100 ms"}
    assert not any(text.startswith("two, b") for text in heights)
    one, ten, hundred = (
        heights[k] for k in ("one, a: 1 ms", "two, a: 10 ms", "one, b & c: 100 ms")
    )
    assert one == 0 and ten > 0 and hundred - ten == pytest.approx(ten, abs=0.2)


def test_dots_lie_on_their_side_of_one(plots):
    drawn = plots.dots("t", "ratio", ["row"], [plots.Series("s", [0.5]), plots.Series("t", [2.0])])
    line = float(re.search(r'class="one" d="M([\d.]+)', drawn)[1])
    (dot,) = (one for one in shapes(drawn, "circle") if "row" in one.find(f"{SVG}title").text)
    (square,) = (one for one in shapes(drawn, "rect") if "row" in one.find(f"{SVG}title").text)
    left, right = float(dot.get("cx")), float(square.get("x")) + 4.5
    assert left < line < right and right - line == pytest.approx(line - left, abs=0.2)


def test_curves_begin_anew_at_a_dot(plots):
    curve = plots.Curve("loss", [[(0, 4), (5, 2)], [(4, 3), (10, 1)]], dashed=True)
    drawn = plots.curves("t", "step", "loss", [curve])
    lines = re.findall(r'<polyline class="stroke a" points="([^"]+)" stroke-dasharray', drawn)
    assert len(lines) == 2
    begins = lines[1].split(" ")[0].split(",")
    dots = [one for one in shapes(drawn, "circle") if one.find(f"{SVG}title").text == "goes on"]
    assert [(dot.get("cx"), dot.get("cy")) for dot in dots] == [tuple(begins)]
