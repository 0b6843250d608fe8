"""The command `txcc`.

It stands beside the package torch_xla_cc, whose import takes seconds: only the commands that need
torch wait for it.
"""

from __future__ import annotations


def main() -> None:
    """Entry point of the command."""
    from txcc import cli, shells

    shells.register()
    cli.txcc(prog_name="txcc")
