"""Two reports side by side as one HTML file, such as of before and after an option."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from html import escape

from .compare import Comparison, Pair
from .html_parts import number, page_of, places, table
from .quotes import Quotes
from .record import Record
from .rows import Row
from .timeline import LEGEND, most_bytes, timeline
from .words import became, overlap, short

_ABSENT = '<span class="absent">not there</span>'


def page(found: Sequence[Comparison], quotes: Quotes | None = None) -> str:
    """The whole file."""
    quotes = quotes or Quotes()
    titles = [_title(one) for one in found]
    links = "".join(f'<a href="#d{i}">{escape(title)}</a>' for i, title in enumerate(titles))
    articles = "".join(_article(f"d{i}", one, quotes) for i, one in enumerate(found))
    nav = f'<nav aria-label="Programs">{links}</nav>'
    return page_of(", ".join(titles[:3]), nav, articles)


def _title(found: Comparison) -> str:
    a, b = found.a.title, found.b.title
    return a if a == b else f"{a} / {b}"


def _article(name: str, found: Comparison, quotes: Quotes) -> str:
    verdict = "The same collectives" if found.equal else _changes(found)
    parts = [
        f'<article id="{name}"><h1>{escape(_title(found))}</h1><p>{verdict}.</p>',
        f"<h2>In figures</h2>{_figures(found)}",
        f"<h2>Collectives</h2>{_pairs(found)}",
        "<h2>Schedules</h2>" + _schedules(name, found, quotes) if _have_schedules(found) else "",
        "</article>",
    ]
    return "".join(parts)


def _changes(found: Comparison) -> str:
    changed = sum(bool(pair.differences) and None not in (pair.a, pair.b) for pair in found.pairs)
    only_a = sum(pair.b is None for pair in found.pairs)
    only_b = sum(pair.a is None for pair in found.pairs)
    return f"{changed} collectives differ, {only_a} are only before, {only_b} only after"


def _figures(found: Comparison) -> str:
    a, b = dict(_of_record(found.a)), dict(_of_record(found.b))
    lines = []
    for name in sorted(dict.fromkeys([*a, *b]), key=lambda name: a.get(name) == b.get(name)):
        before, after = a.get(name, 0), b.get(name, 0)
        lines.append((escape(name), number(before), number(after), _change(before, after)))
    return table("Of the whole program", ("figure", "before", "after", "change"), lines)


def _of_record(record: Record) -> Iterator[tuple[str, int]]:
    yield "bytes received by a rank", record.wire_bytes
    for field in dataclasses.fields(record.summary):
        yield field.name.replace("_", " "), getattr(record.summary, field.name)
    counts = Counter(row.after for row in record.rows if row.compiled)
    yield from ((f"instructions: {opcode}", n) for opcode, n in sorted(counts.items()))
    yield from ((f"memory: {name}", size) for name, size in record.memory.items())


def _change(before: int, after: int) -> str:
    if before == after:
        return ""
    text = f"{after - before:+,}" + (f" ({after / before - 1:+.1%})" if before else "")
    return f'<span class="n changed">{text}</span>'


def _pairs(found: Comparison) -> str:
    lines = [
        (
            _cell(pair.a, lambda row: escape(became(row))),
            _cell(pair.b, lambda row: escape(became(row))),
            _both(pair, lambda row: escape(short(row.operands))),
            _both(pair, lambda row: places(row.calls or ((row.file, row.line),))),
            _cell(pair.a, lambda row: escape(overlap(row))),
            _cell(pair.b, lambda row: escape(overlap(row))),
            _cell(pair.a, lambda row: number(row.wire_bytes)),
            _cell(pair.b, lambda row: number(row.wire_bytes)),
            f'<span class="changed">{escape(", ".join(pair.differences))}</span>',
        )
        for pair in found.pairs
    ]
    headings = (
        *("before", "after", "operands", "issued at", "meanwhile before", "meanwhile after"),
        *("on the wire before", "on the wire after", "differs in"),
    )
    return table("Collective by collective", headings, lines)


def _cell(row: Row | None, text: Callable[[Row], str]) -> str:
    return text(row) if row is not None else _ABSENT


def _both(pair: Pair, text: Callable[[Row], str]) -> str:
    return " / ".join(dict.fromkeys(text(row) for row in (pair.a, pair.b) if row is not None))


def _have_schedules(found: Comparison) -> bool:
    return bool(found.a.schedule or found.b.schedule)


def _schedules(name: str, found: Comparison, quotes: Quotes) -> str:
    """Side by side, or one below the other where there is no room."""
    most = max(most_bytes(found.a), most_bytes(found.b))
    sections = "".join(
        f'<section aria-label="{side}"><h3>{side}: {escape(record.title)}</h3>'
        f"{timeline(f'{name}-{side}', record, most, quotes, in_table=False)}</section>"
        for side, record in (("before", found.a), ("after", found.b))
    )
    return f'{LEGEND}<div class="sides">{sections}</div>'
