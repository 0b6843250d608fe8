"""txcc compare: two programs, collective by collective."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from txcc import package, types
from txcc.output import Failure, print_all, print_page

if TYPE_CHECKING:
    from torch_xla_cc._inspect.record import Record

_EPILOG = """
\b
Examples:
  txcc compare before/ after/
  txcc compare --module=step before/ after/
  txcc compare a.txt b.txt --format=json
  txcc compare before.json after.json --format=html > difference.html
"""


@click.command(epilog=_EPILOG, short_help="Compare two dumps, files of HLO, or reports.")
@click.argument("paths", metavar="A B", nargs=-1, type=click.Path())
@click.option(
    "--module", default="", show_default=False, help="Only modules with this in their names."
)
@types.source_option()
@types.format_option("text", "json", "html")
def compare(paths: tuple[str, ...], module: str, sources: tuple[str, ...], format: str) -> int:
    """Compare two XLA dumps, two files of HLO, or two reports, side by side.

    Files that end in .json are reports of 'txcc inspect --format=json'.

    Exits with 1 if they differ or cannot be read.
    """
    if len(paths) != 2:
        raise click.UsageError(f"Expected two folders or files, but there are {len(paths)}.")
    types.refuse_sources(sources, format)
    package.stand_in()
    with package.in_parts():
        from torch_xla_cc._inspect import compare, dump, html_compare, load, quotes

    try:
        a, b = (_records(path, module) for path in paths)
    except (dump.DumpError, load.ReportError) as error:
        raise Failure(str(error)) from error
    found = compare.compare_all(a, b)
    if format == "html":
        print_page(html_compare.page(found, quotes.Quotes(sources)))
    else:
        print_all(found, format)
    return 0 if all(made.equal for made in found) else 1


def _records(path: str, module: str) -> Sequence[Record]:
    from torch_xla_cc._inspect import load, report

    if path.endswith(".json"):
        found = load.records(path)
        named = [one for one in found if module in one.module]
        if not named:
            there = ", ".join(one.module for one in found) or "none"
            raise load.ReportError(f"{path}: no report of {module!r}; there are: {there}")
        return named
    return report.of_path(path, module)
