"""Reports that `txcc inspect --format=json` has written, as records again."""

from __future__ import annotations

import functools
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from .advice import Advice
from .record import VERSION, Record
from .rows import Row
from .schedule import COMPUTES, ENDS, STARTS, WHOLE, Line, Part

_MADE = ("rows", "advice", "schedule", "lines")  # of records of their own, each checked by itself

T = TypeVar("T")


class ReportError(ValueError):
    """A file that is no report."""


def records(path: str | Path) -> list[Record]:
    """Of a file. ReportError if it is none, or of a version that is not known."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        return [_record(one) for one in (found if isinstance(found, list) else [found])]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
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
    record = Record(**made)
    _check_rows(record)
    return record


def _check_rows(record: Record) -> None:
    """What names a row, or is a part of a page, is to be one that there is."""
    for part in record.schedule:
        if part.kind not in (COMPUTES, STARTS, ENDS, WHOLE):
            raise ValueError(f"schedule: kind = {part.kind!r}")
        if part.kind != COMPUTES and not 0 <= part.row < len(record.rows):
            raise ValueError(f"schedule: row = {part.row} of {len(record.rows)}")


def _made(kind: type[T], found: Mapping[str, Any]) -> T:
    return kind(**_fields(kind, found))


def _fields(kind: Any, found: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 (a dataclass)
    """Those that it has, lists as tuples, each of the type that it is declared with."""
    declared = _declared(kind)
    fields = {name: _tuples(value) for name, value in found.items() if name in declared}
    for name, value in fields.items():
        if name not in _MADE and not _is(value, declared[name]):
            raise TypeError(f"{kind.__name__}.{name} = {value!r:.200}")
    return fields


@functools.cache
def _declared(kind: Any) -> dict[str, Any]:  # noqa: ANN401
    return typing.get_type_hints(kind)


def _is(value: Any, declared: Any) -> bool:  # noqa: ANN401 (of JSON; a type)
    """Whether it is of the type: those that records have."""
    args, origin = typing.get_args(declared), typing.get_origin(declared)
    if origin in (types.UnionType, typing.Union):
        return any(_is(value, one) for one in args)
    if origin is typing.Literal:
        return value in args
    if origin is tuple and args[1:] == (...,):
        return isinstance(value, tuple) and all(_is(one, args[0]) for one in value)
    if origin is tuple:
        same = isinstance(value, tuple) and len(value) == len(args)
        return same and all(map(_is, value, args))
    if origin is Mapping:
        of_both = (_is(k, args[0]) and _is(v, args[1]) for k, v in value.items())
        return isinstance(value, dict) and all(of_both)
    return isinstance(value, declared) and (declared is bool or not isinstance(value, bool))


def _tuples(value: Any) -> Any:  # noqa: ANN401 (of JSON)
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
