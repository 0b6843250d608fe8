"""txcc doctor: is all there, and of the right version?"""

from __future__ import annotations

import json

import click
from rich.table import Table
from rich.text import Text

from txcc import package, types
from txcc.output import print_table
from txcc.progress import working

_EPILOG = """
\b
Examples:
  txcc doctor
  txcc doctor --format=json
  PJRT_DEVICE=POD txcc doctor
"""


@click.command(epilog=_EPILOG)
@types.format_option("text", "json")
def doctor(format: str) -> int:
    """Show versions, the device, and what is missing.

    Exits with 1 if something needs to be done.
    """
    problem, remedy = package.try_to_load()
    if problem:
        package.stand_in(problem, remedy)
    from txcc import findings

    found: list[findings.Finding] = []
    with working("Looking", len(findings.CHECKS)) as begin:
        for what, check in findings.CHECKS:
            begin(f"Looking at {what}")
            found += check()
    if format == "json":
        print(json.dumps([vars(one) for one in found], indent=2))
    else:
        table = Table("", "", "what to do", show_header=False, box=None)
        for one in found:
            mark = Text("ok", style="green") if one.well else Text("NO", style="red")
            table.add_row(mark, one.subject, one.found, "" if one.well else one.remedy)
        print_table(table)
    return 0 if all(one.well for one in found) else 1
