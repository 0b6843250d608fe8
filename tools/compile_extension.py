"""Compiles the extension module and the plugin in place, and says how far that is.

    python tools/compile_extension.py

On a terminal a bar with the time left; else a line now and then. What the compilers say is in
build/extension.log, and is printed if they fail.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

COMMAND = [sys.executable, "setup.py", "build_ext", "--inplace"]
LOG = Path("build/extension.log")
FILE = re.compile(rb"\[(\d+)/(\d+)\]")  # how ninja begins a line
EVERY_S = 30.0


def main() -> int:
    """Run it; its exit code."""
    console = Console(highlight=False)
    columns = (
        *(TextColumn("Compiling torch_xla_cc"), BarColumn(), MofNCompleteColumn()),
        *(TimeRemainingColumn(compact=True), TextColumn("left")),
    )
    LOG.parent.mkdir(exist_ok=True)
    said = time.monotonic()
    if not console.is_terminal:
        console.print("Compiling torch_xla_cc")
    with (
        LOG.open("wb") as log,
        subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process,
        Progress(*columns, console=console, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("", total=None)
        assert process.stdout is not None
        for line in process.stdout:
            log.write(line)
            if found := FILE.match(line):
                done, total = map(int, found.groups())
                bar.update(task, completed=done, total=total)
                if not console.is_terminal and time.monotonic() - said > EVERY_S:
                    said = time.monotonic()
                    console.print(f"  {done} of {total} files")
    if process.returncode:
        sys.stderr.write(LOG.read_text(errors="replace"))
    return process.returncode


if __name__ == "__main__":
    raise SystemExit(main())
