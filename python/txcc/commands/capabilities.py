"""txcc capabilities: what compilers take."""

from __future__ import annotations

import json

import click
from rich.table import Table

from txcc import package, types
from txcc.output import print_table

_EPILOG = """
\b
Examples:
  txcc capabilities
  txcc capabilities --op=all_to_all
  txcc capabilities --target=tpu:v5e:2x4 --format=json
"""


@click.command(epilog=_EPILOG, short_help="Show which collectives are native on which device.")
@click.option(
    "--op",
    type=types.Name(types.OPS),
    metavar="OP",
    help="A collective, such as all_to_all.  [default: all]",
)
@click.option(
    "--target",
    type=types.Completed("target", types.generations),
    metavar="TARGET",
    help="A device, such as cpu, tpu:v5e or gpu:h100.  [default: all]",
)
@types.format_option("text", "json")
def capabilities(op: str | None, target: str | None, format: str) -> int:
    """Show which collectives are native on which device, and why not elsewhere.

    It is what the real compilers made of it: of float32, and groups of all ranks.
    docs/capabilities.md has the rest.
    """
    everywhere = types.generations()
    package.load()
    from torch_xla_cc.capabilities import explain

    try:
        found = [
            explain(one, to)
            for one in ([op] if op else types.OPS)
            for to in ([target] if target else everywhere)
        ]
    except ValueError as error:
        hint = types.meant(target or "", everywhere)
        raise click.BadParameter(f"{error}.{hint}", param_hint="--target") from error
    if format == "json":
        print(json.dumps([dict(vars(one), dtype=str(one.dtype)) for one in found], indent=2))
        return 0
    table = Table("op", "target", "rule", "emitted", "the compiler makes", "why")
    for one in found:
        emitted = ", ".join(one.opcodes)
        table.add_row(one.op, one.target, one.rule, emitted, one.becomes or "", one.why)
    print_table(table)
    return 0
