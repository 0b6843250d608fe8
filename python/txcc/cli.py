"""The commands of `txcc`, and what they have in common."""

from __future__ import annotations

import sys

import click

from txcc.commands.capabilities import capabilities
from txcc.commands.compare import compare
from txcc.commands.completion import completion
from txcc.commands.doctor import doctor
from txcc.commands.inspect import inspect
from txcc.commands.profile import profile

_EPILOG = """
\b
Examples:
  txcc doctor
  txcc inspect examples/demo.py
  txcc inspect --target=tpu:v5e:2x2 --step=2 examples/demo.py -- --steps=3
  txcc capabilities --op=all_to_all

\b
'txcc COMMAND --help' shows the options of a command, and more examples.
Exit codes: 0 if all is well; 1 if something is wrong, differs or cannot be
read; 2 if the command line is wrong.
"""


@click.group(
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
    epilog=_EPILOG,
)
def txcc() -> None:
    """See what XLA makes of your collectives, also on devices that you don't have."""


@txcc.result_callback()
def _end(code: int) -> None:
    """Of each command: its result is the exit code."""
    sys.exit(code)


for _command in (inspect, compare, profile, capabilities, doctor, completion):
    txcc.add_command(_command)
