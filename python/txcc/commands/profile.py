"""txcc profile: what a trace says of collectives."""

from __future__ import annotations

import sys

import click

from txcc import package, types
from txcc.output import Failure, print_table
from txcc.progress import working

_EPILOG = """
\b
Examples:
  txcc profile traces/
  txcc profile --format=json traces/ > profile.json

\b
DIR is what you gave to torch_xla.debug.profiler.start_trace(DIR). If ranks are
processes, each of them traces into a folder of its own: DIR/rank0, DIR/rank1, ...
"""


@click.command(epilog=_EPILOG, short_help="Show how long collectives took, and who waited.")
@click.argument("folder", metavar="DIR", type=click.Path())
@types.format_option("text", "json")
def profile(folder: str, format: str) -> int:
    """Show how long each collective of a traced run took, and who waited for whom.

    Reads the newest trace of each process below DIR. Exits with 1 if there is none.
    """
    package.stand_in()
    with package.in_parts():
        from torch_xla_cc._profile import report, text, xplane

    try:
        with working(f"Reading {folder}"):
            spaces = xplane.spaces(folder)
            found = report.profile(folder, spaces)
    except xplane.TraceError as error:
        raise Failure(str(error)) from error
    for path in xplane.left_out(folder, spaces):
        print(f"{path}: left out, it ended before the newest trace began", file=sys.stderr)
    if format == "json":
        print(found.to_json())
    else:
        for table in text.tables(found):
            print_table(table)
    return 0
