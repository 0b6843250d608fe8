"""What an adapter has replaced, to be put back."""

from __future__ import annotations

from typing import Any

_INHERITED = object()


class Replaced:
    """Attributes of modules and classes, as they were."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []  # where, name, value

    def put(self, where: Any, name: str, value: Any) -> None:  # noqa: ANN401 (any attribute)
        """Replace it."""
        self._before.append((where, name, vars(where).get(name, _INHERITED)))
        setattr(where, name, value)

    def undo(self) -> None:
        """Put back all, the last one first."""
        while self._before:
            where, name, value = self._before.pop()
            if value is _INHERITED:
                delattr(where, name)
            else:
                setattr(where, name, value)
