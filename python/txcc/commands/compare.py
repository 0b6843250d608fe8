"""txcc compare: two programs, collective by collective."""

from __future__ import annotations

import click

from txcc import package, types
from txcc.output import Failure, print_all

_EPILOG = """
\b
Examples:
  txcc compare before/ after/
  txcc compare --module=step before/ after/
  txcc compare a.txt b.txt --format=json
"""


@click.command(epilog=_EPILOG)
@click.argument("paths", metavar="A B", nargs=-1, type=click.Path())
@click.option(
    "--module", default="", show_default=False, help="Only modules with this in their names."
)
@types.format_option("text", "json")
def compare(paths: tuple[str, ...], module: str, format: str) -> int:
    """Show two dumps of XLA's, or two files of HLO, side by side.

    Exits with 1 if they are not equal, or cannot be read.
    """
    if len(paths) != 2:
        raise click.UsageError(f"Expected two folders or files, but there are {len(paths)}.")
    package.stand_in()
    with package.in_parts():
        from torch_xla_cc._inspect import compare, dump, report

    try:
        a, b = (report.of_path(path, module) for path in paths)
    except dump.DumpError as error:
        raise Failure(str(error)) from error
    found = compare.compare_all(a, b)
    print_all(found, format)
    return 0 if all(made.equal for made in found) else 1
