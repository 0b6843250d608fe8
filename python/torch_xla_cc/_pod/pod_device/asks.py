"""What a rank waits for before it begins a program (attendance.py)."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .errors import UNAVAILABLE, Refused

Lost = Callable[[str], None]


class Asks:
    """Whether this rank may go on, where it asks; and that it hears when all is lost."""

    def __init__(self, lost: Lost) -> None:
        self._lost = lost
        self._changed = threading.Condition()
        self._waits = False
        self._why: str | None = None

    def wait(self, ask: Callable[[], None]) -> None:
        """Ask, and wait until this rank may go on. Raise if all is lost."""
        with self._changed:
            self._waits = True
        ask()
        with self._changed:
            self._changed.wait_for(lambda: not self._waits or self._why is not None)
        self.check()

    def check(self) -> None:
        """Raise if all is lost."""
        with self._changed:
            if self._why is not None:
                raise Refused(UNAVAILABLE, self._why)

    def agreed(self) -> None:
        """It may."""
        with self._changed:
            self._waits = False
            self._changed.notify_all()

    def lose(self, what: str) -> None:
        """All is lost."""
        with self._changed:
            self._why = self._why or what
            self._changed.notify_all()
        self._lost(what)
