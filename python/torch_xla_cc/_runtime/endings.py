"""How a rank ends, for whoever launches ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class RankFailed(RuntimeError):
    """Raised by launch when a rank's exception cannot be raised itself."""


def result_of(fn: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401 (as fn)
    """What it returns; None if it ends by sys.exit() or sys.exit(0), as a process ends well."""
    try:
        return fn(*args)
    except SystemExit as end:
        if end.code is None or (isinstance(end.code, int) and end.code == 0):
            return None
        raise
