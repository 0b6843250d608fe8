"""What is being done, and how long it will take: on stderr, and only on a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_EVERY_S = 2.0


@contextlib.contextmanager
def working(what: str, parts: int = 1) -> Iterator[Callable[[str], None]]:
    """A line that is there while the block runs; what it gives begins the next of `parts`."""
    console = Console(stderr=True)
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description}")]
    if parts > 1:
        columns += [BarColumn(), MofNCompleteColumn()]
    columns.append(TimeElapsedColumn())
    if parts > 1:
        columns += [TimeRemainingColumn(compact=True), TextColumn("left")]
    # Nothing else is printed meanwhile: sys.stdout and sys.stderr stay what they are.
    with Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as bar:
        task = bar.add_task(what, total=parts if parts > 1 else None)
        begun = 0

        def begin(what: str) -> None:
            nonlocal begun
            bar.update(task, description=what, completed=begun)
            begun += 1

        yield begin


def steps_before(step: int, script: str) -> Callable[[int], None]:
    """To be called with the number of steps that a script has run: says how far it is.

    In lines, as the script prints meanwhile, and may have a bar of its own.
    """
    console = Console(stderr=True, markup=False, highlight=False)
    if not sys.stderr.isatty():
        return lambda _: None
    console.print(f"Running {script} on virtual CPU devices up to step {step}", style="dim")
    first = last = time.monotonic()  # when the first step had run: it compiles, and tells nothing

    def tell(done: int) -> None:
        nonlocal first, last
        now = time.monotonic()
        if done == 1:
            first = now
        elif now - last >= _EVERY_S:
            last = now
            left = (now - first) / (done - 1) * (step - 1 - done)
            console.print(f"{done} of {step - 1} steps before it: {left:.0f} s left", style="dim")

    return tell
