"""Runs what mostly waits in the background, while other tests of its file run.

    LATE = beside.Runs(asleep=lambda: worlds.World(4).run(late), ...)  # at the top of a test file

    def test_asleep():
        assert LATE["asleep"] == ...

The first that is asked for starts all of them, each on a thread; a fixture that calls `start()`
does so before the first test. What one of them needs (a world, a process) is its own, and is killed
with the tests (conftest.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import forks


class Runs:
    """Results, or exceptions, by name."""

    def __init__(self, **runs: Callable[[], Any]) -> None:
        self._runs = runs
        self._results: dict[str, Future[Any]] = {}

    def __getitem__(self, name: str) -> Any:
        self.start()
        return self._results[name].result()

    def start(self) -> None:
        """Start all, unless they have been started."""
        if not self._results:
            forks.server()  # which changes the environment of the process while it starts
            self._results = {name: Future() for name in self._runs}
            for name in self._runs:
                threading.Thread(target=self._run, args=(name,), daemon=True).start()

    def _run(self, name: str) -> None:
        try:
            self._results[name].set_result(self._runs[name]())
        except BaseException as error:
            self._results[name].set_exception(error)
