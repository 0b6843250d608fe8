"""The command line tool.

txcc doctor     versions, device, thread pool, and what is missing
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence

from absl import app, flags
from rich.console import Console
from rich.table import Table

from torch_xla_cc import _doctor

_FORMAT = flags.DEFINE_enum("format", "text", ["text", "json"], "How results are printed.")


def _run_doctor() -> int:
    """Print what was found; 1 if something needs to be done."""
    findings = list(_doctor.findings())
    if _FORMAT.value == "json":
        print(json.dumps([vars(finding) for finding in findings], indent=2))
    else:
        table = Table("", "", "what to do", show_header=False, box=None)
        for finding in findings:
            mark = "[green]ok[/]" if finding.well else "[red]NO[/]"
            remedy = "" if finding.well else finding.remedy
            table.add_row(mark, finding.subject, finding.found, remedy)
        Console().print(table)
    return 0 if all(finding.well for finding in findings) else 1


_COMMANDS: dict[str, Callable[[], int]] = {"doctor": _run_doctor}


def _main(argv: Sequence[str]) -> int:
    if len(argv) != 2 or argv[1] not in _COMMANDS:
        print(__doc__, file=sys.stderr)
        return 2
    return _COMMANDS[argv[1]]()


def main() -> None:
    """Entry point of `txcc`."""
    app.run(_main)


if __name__ == "__main__":
    main()
