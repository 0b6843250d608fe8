"""Reports that `txcc inspect --format=json` has written, as records again."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from .advice import Advice
from .record import VERSION, Record
from .rows import Row
from .schedule import Line, Part

T = TypeVar("T")


class ReportError(ValueError):
    """A file that is no report."""


def records(path: str | Path) -> list[Record]:
    """Of a file. ReportError if it is none, or of a version that is not known."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        return [_record(one) for one in (found if isinstance(found, list) else [found])]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ReportError(
            f"{path}: expected what `txcc inspect --format=json` of this version prints: "
            f"{type(error).__name__}: {error}"
        ) from error


def _record(found: Mapping[str, Any]) -> Record:
    if found["version"] != VERSION:
        raise ValueError(f"version = {found['version']!r}, but {VERSION} is read")
    made = _fields(Record, found)
    made["rows"] = tuple(_made(Row, one) for one in found["rows"])
    made["advice"] = tuple(_made(Advice, one) for one in found["advice"])
    made["schedule"] = tuple(
        Part(**{**_fields(Part, one), "lines": tuple(_made(Line, line) for line in one["lines"])})
        for one in found.get("schedule", ())
    )
    return Record(**made)


def _made(kind: type[T], found: Mapping[str, Any]) -> T:
    return kind(**_fields(kind, found))


def _fields(kind: Any, found: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 (a dataclass)
    """Those that it has, lists as tuples."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: _tuples(value) for name, value in found.items() if name in names}


def _tuples(value: Any) -> Any:  # noqa: ANN401 (of JSON)
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
