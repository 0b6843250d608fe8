"""Pieces of HTML that pages are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path, PurePath
from urllib.parse import quote

_STYLE = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
_LONG = 40  # lines of a table, of which more scroll within it


def page_of(title: str, nav: str, body: str) -> str:
    """A whole file: no scripts, nothing from elsewhere."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        # Names in a program come from anywhere: should one get past escape(), it runs nothing.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"{nav}<main>{body}</main></body></html>\n"
    )


def table(
    caption: str, headings: Sequence[str], lines: Sequence[Sequence[str]], ids: Sequence[str] = ()
) -> str:
    """Of cells that are HTML already; `ids` are those of the lines that have one."""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    named = [*ids, *[""] * (len(lines) - len(ids))]
    body = "".join(
        (f'<tr id="{name}">' if name else "<tr>")
        + "".join(f"<td>{cell}</td>" for cell in line)
        + "</tr>"
        for name, line in zip(named, lines, strict=True)
    )
    long = " long" if len(lines) > _LONG else ""
    return (
        f'<div class="wide{long}" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        "</table></div>"
    )


def number(value: int) -> str:
    return f'<span class="n">{value:,}</span>'


def places(places: Sequence[tuple[str, int]]) -> str:
    """Each once, with how often, if several collectives were combined."""
    counts = Counter(place for place in places if place[0])
    return ", ".join((f"{n} " if n > 1 else "") + source(*place) for place, n in counts.items())


def source(file: str, line: int) -> str:
    if not file:
        return ""
    text = escape(f"{PurePath(file).name}:{line}")
    if not file.startswith("/"):
        if not Path(file).is_file():
            return text
        file = str(Path(file).resolve())
    return f'<a href="file://{quote(file)}#L{line}">{text}</a>'


def sized(size: int) -> str:
    """ "1.5 MiB"."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1000 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.1f} {unit}"


def brief(size: int) -> str:
    for unit in ("", "Ki", "Mi", "Gi", "Ti"):
        if size < 1024 or unit == "Ti":
            break
        size //= 1024
    return f"{size}{unit}"
