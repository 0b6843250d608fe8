"""txcc completion: what a shell needs to complete its words."""

from __future__ import annotations

import click

from txcc import shells, types

_EPILOG = """
\b
Examples:
  eval "$(txcc completion bash)"
  eval "$(.venv/bin/txcc completion zsh)"
  txcc completion bash > ~/.local/share/bash-completion/completions/txcc
"""


@click.command(epilog=_EPILOG, short_help="Print the script that completes words in a shell.")
@click.argument("shell", type=types.Name(tuple(shells.SHELLS)))
def completion(shell: str) -> int:
    """Print the script by which a shell completes txcc's words.

    They are commands, options, targets and files. Have it run by the shell:
    in ~/.bashrc, or in ~/.zshrc after compinit.
    """
    context = click.get_current_context().find_root()
    kind = shells.SHELLS[shell]
    click.echo(kind(context.command, {}, "txcc", "_TXCC_COMPLETE").source(), nl=False)
    return 0
