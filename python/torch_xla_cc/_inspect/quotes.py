"""Lines of Python that a page quotes, beside what the compiler made of them."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from html import escape
from pathlib import Path


class Quotes:
    """From files below some folders, and from no others: a report may come from another machine and
    name any file of this one, and the page that is made of it may be sent away."""

    def __init__(self, folders: Iterable[str | Path] = ()) -> None:
        """Of the current folder and these."""
        self._folders = [Path(folder).resolve() for folder in (".", *folders)]

    def snippet(self, file: str, line: int) -> str:
        """The line, and what is around it; nothing of a file that is not to be quoted."""
        lines = self._lines(file)
        if not 0 < line <= len(lines) or not lines[line - 1].strip():
            return ""
        around = range(max(line - 1, 1), min(line + 1, len(lines)) + 1)
        shown = [f"{n:>5}  {escape(lines[n - 1].rstrip())}" for n in around]
        shown[line - around[0]] = f"<b>{shown[line - around[0]]}</b>"
        return f'<pre aria-label="{escape(f"{file}:{line}")}">' + "\n".join(shown) + "</pre>"

    @functools.lru_cache(maxsize=256)  # noqa: B019 (it lives as long as a page is made)
    def _lines(self, file: str) -> list[str]:
        try:
            path = Path(file).resolve()  # where a link leads to counts
            if path.suffix != ".py" or not any(map(path.is_relative_to, self._folders)):
                return []
            return path.read_text(encoding="utf-8", errors="replace").splitlines()
        except (OSError, ValueError, RuntimeError):  # absent; a NUL in it; links in a circle
            return []
