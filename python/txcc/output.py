"""How results and failures are printed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from torch_xla_cc._inspect.compare import Comparison
    from torch_xla_cc._inspect.report import Report

_PIPED_WIDTH = 160


class Failure(click.ClickException):
    """What a command could not do: exit code 1."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        context = click.get_current_context(silent=True)
        self._command = context.command_path if context else "txcc"

    def show(self, file: IO[Any] | None = None) -> None:
        """On stderr, with the command's name."""
        click.echo(f"{self._command}: {self.message}", file, err=True)


def print_table(table: Table) -> None:
    # No markup: [aot] and folders of such names are text.
    Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH, markup=False).print(table)


def print_page(page: str) -> None:
    """As its head says, whatever the terminal has."""
    sys.stdout.flush()
    sys.stdout.buffer.write(f"{page}\n".encode())
    sys.stdout.buffer.flush()


def print_all(found: Sequence[Report] | Sequence[Comparison], format: str) -> None:
    """Tables, or a list of JSON's."""
    if format == "json":
        print("[" + ",\n".join(one.to_json() for one in found) + "]")
        return
    for one in found:
        print_table(one.table())
