"""A report as one HTML file: no scripts, nothing from elsewhere, readable without seeing it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from itertools import groupby

from .advice import Advice
from .heat import heat_map
from .html_parts import number, page_of, places, source, table
from .quotes import Quotes
from .record import Record
from .rows import Row
from .timeline import LEGEND, most_bytes, shown, timeline
from .words import became, overlap, ranks, short

_WIDTH, _LINE = 1000, 22  # of the pictures of schedules, in units of SVG


def page(reports: Sequence[Record], quotes: Quotes | None = None) -> str:
    """The whole file, of one report or of several."""
    quotes = quotes or Quotes()
    titles = [report.title for report in reports]
    links = "".join(f'<a href="#r{i}">{escape(title)}</a>' for i, title in enumerate(titles))
    articles = "".join(_article(f"r{i}", report, quotes) for i, report in enumerate(reports))
    nav = f'<nav aria-label="Programs">{links}</nav>'
    return page_of(", ".join(titles[:3]), nav, articles)


def _article(name: str, report: Record, quotes: Quotes) -> str:
    parts = [
        f'<article id="{name}"><h1>{escape(report.title)}</h1>{_first_lines(report)}',
        _totals(report),
        f'<p class="failure" role="alert">{escape(report.failure)}</p>' if report.failure else "",
        f"<h2>Collectives</h2>{_collectives(name, report)}",
        f"<h2>Schedule</h2>{_schedule(name, report, quotes)}",
        f"<h2>Advice</h2>{_advice(report.advice)}" if report.advice else "",
        f"<h2>Bytes by operation</h2>{_by_opcode(report)}",
        f"<h2>Traffic between ranks</h2>{heat_map(report.traffic())}</article>",
    ]
    return "".join(parts)


def _first_lines(report: Record) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in report.first_lines)


def _totals(report: Record) -> str:
    figures = [
        ("ranks", f"{report.world:,}"),
        ("collectives", f"{len(report.rows):,}"),
        ("bytes received by a rank", f"{report.wire_bytes:,}"),
        *((f"memory: {name}", f"{size:,}") for name, size in report.memory.items()),
    ]
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{n}</dd></div>" for name, n in figures)
    return f"<dl>{items}</dl>"


def _collectives(name: str, report: Record) -> str:
    headings: tuple[str, ...] = (
        *("became", "operands", "groups", "how", "issued at", "meanwhile", "bytes"),
    )
    in_schedule = shown(report)
    lines = [
        (
            f'<a href="#{name}-s{i}">{escape(became(row))}</a>'
            if i in in_schedule
            else escape(became(row)),
            escape(short(row.operands)),
            escape(ranks(row, report.world)),
            escape(f"{row.rule}: {row.why}" if row.why else row.rule),
            places(row.calls or ((row.file, row.line),)),
            escape(overlap(row)),
            number(row.memory_bytes),
            number(row.wire_bytes),
            number(row.link_bytes),
        )
        for i, row in enumerate(report.rows)
    ]
    ids = [f"{name}-c{i}" if i in in_schedule else "" for i in range(len(lines))]
    headings = (*headings, "on the wire", "on a link")
    return table("What each collective became", headings, lines, ids)


def _advice(given: Sequence[Advice]) -> str:
    items = []
    for one in given:
        places = [source(*place) for place in dict.fromkeys(one.lines)]
        lines = ", ".join(place for place in places if place)
        items.append(
            f"<li><strong>{escape(one.kind)}</strong>: {escape(one.text)} {one.saves}"
            + (f" Issued at {lines}." if lines else "")
            + "</li>"
        )
    return f"<ul>{''.join(items)}</ul>"


def _by_opcode(report: Record) -> str:
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for row in report.rows:
        sizes[row.after or "gone"] += row.wire_bytes
        counts[row.after or "gone"] += 1
    most = max(sizes.values(), default=0) or 1
    lines = [
        (
            escape(opcode),
            number(counts[opcode]),
            number(size),
            f'<span class="bar" style="--part:{size / most:.4f}"></span>',
        )
        for opcode, size in sizes.most_common()
    ]
    return table("Bytes received by a rank", ("operation", "how many", "bytes", ""), lines)


def _schedule(name: str, report: Record, quotes: Quotes) -> str:
    """The timeline; of a program whose instructions are not known, its collectives alone."""
    if not report.schedule:
        return _pictures(report)
    return LEGEND + timeline(name, report, most_bytes(report), quotes)


def _pictures(report: Record) -> str:
    rows = sorted(
        (row for row in report.rows if row.computation in report.lengths and row.opcode),
        key=lambda row: (row.computation, row.begins),
    )
    pictures = [
        _picture(name, list(some), max(report.lengths[name], 1))
        for name, some in groupby(rows, key=lambda row: row.computation)
    ]
    text = (
        "<p>From left to right the instructions of a computation, in the order in which they are "
        "scheduled: their number, not their time. A bar is a collective, from start to done; it is "
        "filled where something computes meanwhile that is not small.</p>"
    )
    return text + "".join(pictures)


def _picture(name: str, rows: list[Row], length: int) -> str:
    bars = []
    for i, row in enumerate(rows):
        left = row.begins * _WIDTH / length
        width = max((row.ends - row.begins + 1) * _WIDTH / length, 3)
        busy = "busy" if row.overlaps else "idle"
        says = f"{became(row)} {row.name}: {row.begins} to {row.ends} of {length}"
        says += f", meanwhile {short(row.meanwhile)}" if row.meanwhile else ", nothing meanwhile"
        anchor = left + width + 6 if left + width < _WIDTH * 0.75 else left - 6
        end = "start" if anchor > left else "end"
        bars.append(
            f"<g><title>{escape(says)}</title>"
            f'<rect class="{busy}" x="{left:.1f}" y="{i * _LINE + 3}" width="{width:.1f}" '
            f'height="{_LINE - 6}" rx="2"/><text x="{anchor:.1f}" y="{i * _LINE + 15}" '
            f'text-anchor="{end}">{escape(became(row))}</text></g>'
        )
    height = len(rows) * _LINE
    return (
        f"<figure><figcaption>{escape(name)}, {length:,} instructions</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="Schedule of {escape(name)}">'
        f"{''.join(bars)}</svg></figure>"
    )
