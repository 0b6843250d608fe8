"""A report as one HTML file: no scripts, nothing from elsewhere, readable without seeing it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from pathlib import Path, PurePath
from urllib.parse import quote

from .advice import Advice
from .record import Record
from .rows import Row
from .words import became, overlap, ranks, short

_STYLE = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
_MOST_CELLS = 64  # ranks across the heat map; of larger worlds several share a cell
_MOST_NUMBERS = 16  # ranks across, up to which the cells show their numbers
_WIDTH, _LINE = 1000, 22  # of the pictures of schedules, in units of SVG


def page(reports: Sequence[Record]) -> str:
    """The whole file, of one report or of several."""
    titles = [report.title for report in reports]
    links = "".join(f'<a href="#r{i}">{escape(title)}</a>' for i, title in enumerate(titles))
    articles = "".join(_article(f"r{i}", report) for i, report in enumerate(reports))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        # Names in a program come from anywhere: should one get past escape(), it runs nothing.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(', '.join(titles[:3]))}</title><style>{_STYLE}</style></head><body>"
        f'<nav aria-label="Programs">{links}</nav><main>{articles}</main></body></html>\n'
    )


def _article(name: str, report: Record) -> str:
    parts = [
        f'<article id="{name}"><h1>{escape(report.title)}</h1>{_first_lines(report)}',
        _totals(report),
        f'<p class="failure" role="alert">{escape(report.failure)}</p>' if report.failure else "",
        f"<h2>Collectives</h2>{_collectives(report)}",
        f"<h2>Advice</h2>{_advice(report.advice)}" if report.advice else "",
        f"<h2>Bytes by operation</h2>{_by_opcode(report)}",
        f"<h2>Traffic between ranks</h2>{_heat_map(report.traffic())}",
        f"<h2>Schedule</h2>{_schedule(report)}</article>",
    ]
    return "".join(parts)


def _first_lines(report: Record) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in report.first_lines)


def _totals(report: Record) -> str:
    figures = [
        ("ranks", f"{report.world:,}"),
        ("collectives", f"{len(report.rows):,}"),
        ("bytes that come to a rank", f"{report.wire_bytes:,}"),
        *((f"memory: {name}", f"{size:,}") for name, size in report.memory.items()),
    ]
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{n}</dd></div>" for name, n in figures)
    return f"<dl>{items}</dl>"


def _table(caption: str, headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Of cells that are HTML already."""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>" for line in lines)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        "</table></div>"
    )


def _number(value: int) -> str:
    return f'<span class="n">{value:,}</span>'


def _collectives(report: Record) -> str:
    headings = ("became", "operands", "groups", "how", "issued at", "meanwhile", "bytes")
    lines = [
        (
            escape(became(row)),
            escape(short(row.operands)),
            escape(ranks(row, report.world)),
            escape(f"{row.rule}: {row.why}" if row.why else row.rule),
            _places(row.calls or ((row.file, row.line),)),
            escape(overlap(row)),
            _number(row.memory_bytes),
            _number(row.wire_bytes),
            _number(row.link_bytes),
        )
        for row in report.rows
    ]
    return _table("What each collective became", (*headings, "on the wire", "on a link"), lines)


def _places(places: Sequence[tuple[str, int]]) -> str:
    """Each once, with how often, if several collectives were combined."""
    counts = Counter(place for place in places if place[0])
    return ", ".join((f"{n} " if n > 1 else "") + _source(*place) for place, n in counts.items())


def _source(file: str, line: int) -> str:
    if not file:
        return ""
    text = escape(f"{PurePath(file).name}:{line}")
    if not file.startswith("/"):
        return text
    return f'<a href="file://{quote(file)}#L{line}">{text}</a>'


def _advice(given: Sequence[Advice]) -> str:
    items = []
    for one in given:
        places = [_source(*place) for place in dict.fromkeys(one.lines)]
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
            _number(counts[opcode]),
            _number(size),
            f'<span class="bar" style="--part:{size / most:.4f}"></span>',
        )
        for opcode, size in sizes.most_common()
    ]
    return _table("Bytes that come to a rank", ("operation", "how many", "bytes", ""), lines)


def _heat_map(matrix: list[list[int]]) -> str:
    """Rows send to columns."""
    step = -(-len(matrix) // _MOST_CELLS)
    blocks = range(0, len(matrix), step)
    cells = [
        [sum(map(sum, (line[b : b + step] for line in matrix[a : a + step]))) for b in blocks]
        for a in blocks
    ]
    names = [f"{a}" if step == 1 else f"{a}-{min(a + step, len(matrix)) - 1}" for a in blocks]
    most = max(map(max, cells), default=0) or 1
    hidden = "" if len(cells) <= _MOST_NUMBERS else ' class="quiet"'
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    body = "".join(
        f'<tr><th scope="row">{name}</th>'
        + "".join(
            f'<td style="--part:{size / most:.4f}" title="{name} to {to}: {size:,} bytes">'
            f"<span{hidden}>{_brief(size)}</span></td>"
            for to, size in zip(names, line, strict=True)
        )
        + "</tr>"
        for name, line in zip(names, cells, strict=True)
    )
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="Traffic between ranks">'
        f'<table class="heat"><caption>Bytes from the rank of a row to the rank of a column; the '
        f"strongest colour is {most:,}</caption><thead><tr><td></td>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _brief(size: int) -> str:
    for unit in ("", "Ki", "Mi", "Gi", "Ti"):
        if size < 1024 or unit == "Ti":
            break
        size //= 1024
    return f"{size}{unit}"


def _schedule(report: Record) -> str:
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
