"""The command `txcc`: torch_xla_cc.cli, or the reason why that cannot be imported."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the command."""
    try:
        from torch_xla_cc import cli
    except ImportError as error:
        sys.exit(f"txcc: {error}")
    cli.main()
