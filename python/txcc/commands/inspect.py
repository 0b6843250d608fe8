"""txcc inspect: what the collectives of a script, or of a dump, become."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from txcc import package, types
from txcc.output import Failure, print_all, print_page
from txcc.progress import steps_before, working

if TYPE_CHECKING:
    from torch_xla_cc._inspect.ranks import Programs
    from torch_xla_cc._inspect.report import Report

_EPILOG = """
\b
Examples:
  txcc inspect examples/demo.py
  txcc inspect --target=tpu:v5e:2x2 --step=2 examples/demo.py -- --steps=3
  txcc inspect --ranks=4 train.py -- --lr 0.1
  txcc inspect --rank=3 --target=tpu:v5e:16x16 examples/clients/fsdp2.py
  txcc inspect --dump DIR --format=html > report.html

\b
A script that launches its ranks itself runs as it is, up to the step, on virtual
CPU devices. One that torchrun starts needs --ranks. What follows -- goes to the
script. To compile for a TPU or GPU you need its compiler, not the device: run
'make compilers' in a clone, or pip install 'torch_xla_cc[aot,aot-gpu]'.
"""
# Of what the compiler is asked, and of what a dump is.
_OF_SCRIPTS = ("target", "step", "ranks", "rank", "option", "timeout")
_OF_DUMPS = ("module",)


@click.command(epilog=_EPILOG, short_help="Show what became of the collectives of a script.")
@click.argument("script", type=click.Path(), required=False)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--target",
    type=types.Target("target", types.targets),
    default="cpu",
    metavar="TARGET",
    help="The device to compile for, such as tpu:v5e:2x4 or gpu:h100x8.",
)
@click.option(
    "--step",
    type=click.IntRange(min=1),
    help="Which step to show, of those that have collectives: 1 by default, 2 with --rank.",
)
@click.option(
    "--ranks",
    type=click.IntRange(min=1),
    help="Run the script once for each of so many ranks, as torchrun does.",
)
@click.option(
    "--rank",
    type=click.IntRange(min=0),
    help="Run the script once, as this rank, in a dry run without the others.",
)
@click.option(
    "--option",
    "options",
    type=types.Setting(),
    multiple=True,
    metavar="NAME=VALUE",
    help="An option for the compiler. May be given several times.",
)
@click.option(
    "--timeout",
    type=types.Seconds(),
    default=120.0,
    help="How many seconds the compiler may take.",
)
@click.option(
    "--dump",
    type=click.Path(),
    help="Instead of a script: a folder written by XLA_FLAGS=--xla_dump_to=DIR.",
)
@click.option(
    "--module",
    default="",
    show_default=False,
    help="With --dump: only modules with this in their names.",
)
@types.source_option()
@types.format_option("text", "json", "html")
def inspect(
    script: str | None,
    args: tuple[str, ...],
    target: str,
    step: int | None,
    ranks: int | None,
    rank: int | None,
    options: tuple[tuple[str, str], ...],
    timeout: float,
    dump: str | None,
    module: str,
    sources: tuple[str, ...],
    format: str,
) -> int:
    """Show what the compiler made of the collectives of a script or a dump.

    Exits with 1 if the ranks have different collectives, the compiler fails, or there is no such
    step.
    """
    if bool(script) == bool(dump):
        raise click.UsageError("Expected a script, or --dump DIR and no other word.")
    types.refuse_sources(sources, format)
    _refuse(_OF_SCRIPTS if dump else _OF_DUMPS, "--dump" if dump else "a script")
    if dump:
        _show(_of_dump(dump, module), format, sources)
        return 0
    step = step or (1 if rank is None else 2)  # alone, a rank builds its model in the first
    run = (str(script), args, target, step, ranks, rank)
    return _inspect_script(*run, dict(options), timeout, format, sources)


def _refuse(names: Sequence[str], beside: str) -> None:
    """Options that would have no effect."""
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "")
        option = parameter.opts[0]
        if option.lstrip("-") in names and given is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option} has no effect beside {beside}. Leave it out.")


def _of_dump(folder: str, module: str) -> list[Report]:
    package.stand_in()
    with package.in_parts():
        from torch_xla_cc._inspect import dump, report

    try:
        return report.of_path(folder, module)
    except dump.DumpError as error:
        raise Failure(str(error)) from error


def _inspect_script(
    path: str,
    args: Sequence[str],
    target: str,
    step: int,
    ranks: int | None,
    rank: int | None,
    options: dict[str, str],
    timeout_s: float,
    format: str,
    sources: Sequence[str],
) -> int:
    os.environ["PJRT_DEVICE"] = "CPU"  # virtual devices, whatever is here
    package.load()
    with package.in_parts():
        from torch_xla_cc import _aot
        from torch_xla_cc._aot.target import find_library
        from torch_xla_cc._inspect import capture, compiled, parts, script
        from torch_xla_cc._inspect import ranks as all_ranks

    try:  # before the script runs
        _aot.as_texts(options, target)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--option") from error
    try:
        world = None if ranks is rank is None else all_ranks.world_of(target, ranks)
    except ValueError as error:
        said = str(error).replace("nprocs", "--ranks").replace("target =", "--target =")
        raise click.UsageError(said) from error
    if rank is not None and world is not None and rank >= world:
        raise click.UsageError(f"--rank = {rank}, but there are {world} ranks, from 0 on.")
    try:
        if not compiled.is_cpu(target):
            find_library(_aot.parse_target(target))
        ran = steps_before(step, path)
        programs = script.programs(path, args, target, ranks, step, ran=ran, alone=rank)
        reports = _reports(programs[0], target, timeout_s, options)
    except (OSError, ValueError, capture.StepError, _aot.CompilerMissing) as error:
        if not isinstance(error, capture.StepError) and script.raised_in(path, error):
            raise  # of the script, with its lines
        raise Failure(str(error)) from error
    if not any(report.rows for report in reports):
        raise Failure(f"{reports[0].module}: no collective is in it")
    compared = all_ranks.of_programs(programs)
    verdict = compared.verdict
    if rank is not None:
        verdict = f"rank {rank} of {programs[0][0].world} in a dry run for {target}"
    if why := parts.why_several(programs[0], rank is not None):
        verdict += f". {why}"
    print(verdict, file=sys.stdout if format == "text" else sys.stderr)
    _show(reports, format, [*sources, os.path.dirname(path) or "."])
    return 1 if compared.divergence or any(one.failure for one in reports) else 0


def _reports(
    programs: Programs, target: str, timeout_s: float, options: dict[str, str]
) -> list[Report]:
    from torch_xla_cc._inspect import parts, report

    reports = []
    found = parts.distinct(programs)
    with working(f"Compiling for {target}", 2 * len(found)) as begin:
        for number, (one, times) in enumerate(found, 1):
            which = f" {number} of {len(found)}" if len(found) > 1 else ""
            begin(f"Compiling program{which} for {target}: at most {timeout_s:g} s")
            sides = report.sides(one, timeout_s, options)
            begin(f"Looking for advice on program{which}")
            reports.append(dataclasses.replace(report.of_sides(*sides), times=times))
    return reports


def _show(reports: Sequence[Report], format: str, sources: Sequence[str]) -> None:
    if format == "html":
        from torch_xla_cc._inspect import html, quotes

        print_page(html.page(reports, quotes.Quotes(sources)))
    else:
        print_all(reports, format)
