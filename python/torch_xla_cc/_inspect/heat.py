"""The traffic between ranks as an HTML table."""

from __future__ import annotations

from .html_parts import brief

_MOST_CELLS = 64  # ranks across; of larger worlds several share a cell
_MOST_NUMBERS = 16  # ranks across, up to which the cells show their numbers


def heat_map(matrix: list[list[int]]) -> str:
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
            f"<span{hidden}>{brief(size)}</span></td>"
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
