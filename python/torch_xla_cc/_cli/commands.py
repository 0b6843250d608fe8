"""The command line tool.

txcc doctor                 versions, device, thread pool, and what is missing
txcc capabilities           what the compilers of devices take: all, or --op and --target
txcc inspect SCRIPT -- ...  what the collectives of a step of a script become, for --target; the
                            ranks that it launches, or --ranks, run on virtual devices up to --step;
                            with --rank that one alone, and the others are on paper
txcc inspect --dump DIR     what the collectives became in the programs of a dump of XLA's
txcc compare A B            the collectives of two programs: dumps, or files of HLO

--format=json prints the same for programs, --format=html (of inspect) a page with pictures.
Exit codes: 0; 1 if something is not well, cannot be read, or is not equal; 2 for a command line
that is wrong.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from absl import flags
from rich.console import Console
from rich.table import Table
from rich.text import Text

from torch_xla_cc._cli import doctor

if TYPE_CHECKING:
    from torch_xla_cc._inspect.compare import Comparison
    from torch_xla_cc._inspect.report import Report

_PIPED_WIDTH = 160
_TARGETS = ("cpu", "tpu:v4", "tpu:v5e", "tpu:v5p", "tpu:v6e", "gpu:a100", "gpu:h100", "gpu:b200")

# Not absl's own: those are of the script that is inspected, which may define the same.
_FLAGS = flags.FlagValues()  # type: ignore[no-untyped-call]

_FORMAT = flags.DEFINE_enum(
    "format", "text", ["text", "json", "html"], "How results are printed.", flag_values=_FLAGS
)
_DUMP = flags.DEFINE_string(
    "dump", None, "A folder that XLA_FLAGS=--xla_dump_to=DIR has filled.", flag_values=_FLAGS
)
_OP = flags.DEFINE_string(
    "op", "", "A collective, such as all_to_all; all of them if empty.", flag_values=_FLAGS
)
_TARGET = flags.DEFINE_string(
    "target", "", "A device, such as tpu:v5e or gpu:h100.", flag_values=_FLAGS
)
_RANKS = flags.DEFINE_integer(
    "ranks",
    None,
    "Run the script once a rank, as torchrun does, and so often.",
    lower_bound=1,
    flag_values=_FLAGS,
)
_RANK = flags.DEFINE_integer(
    "rank",
    None,
    "Run the script once, as this rank; the others are on paper.",
    lower_bound=0,
    flag_values=_FLAGS,
)
_STEP = flags.DEFINE_integer(
    "step",
    None,
    "Which of the script's steps that have collectives: 1, or 2 with --rank.",
    lower_bound=1,
    flag_values=_FLAGS,
)
_OPTIONS = flags.DEFINE_multi_string(
    "option", [], "NAME=VALUE for the compiler, as often as needed.", flag_values=_FLAGS
)
_TIMEOUT = flags.DEFINE_float(
    "timeout", 120.0, "Seconds for the compiler.", lower_bound=0.0, flag_values=_FLAGS
)
_MODULE = flags.DEFINE_string(
    "module", "", "Only modules with this in their names.", flag_values=_FLAGS
)
_HELP = flags.DEFINE_boolean("help", False, "Print this.", flag_values=_FLAGS)


def _run_inspect(words: Sequence[str]) -> int:
    """Print a report of each program that has collectives; 1 if something is not well with it."""
    if _DUMP.value and not words:
        return _inspect_dump(_DUMP.value)
    if words and not _DUMP.value:
        return _inspect_script(words[0], words[1:])
    return _misused("inspect: expected a script, or --dump DIR and no other word")


def _inspect_dump(folder: str) -> int:
    from torch_xla_cc._inspect import dump, report

    try:
        _show_reports(report.of_path(folder, _MODULE.value))
    except dump.DumpError as error:
        return _failed(f"inspect: {error}")
    return 0


def _inspect_script(path: str, args: Sequence[str]) -> int:
    os.environ["PJRT_DEVICE"] = "CPU"  # virtual devices, whatever is here
    from torch_xla_cc import _aot
    from torch_xla_cc._inspect import capture, ranks, report, script

    target, alone = _TARGET.value or "cpu", _RANK.value
    try:
        options = _options(_OPTIONS.value)
        _aot.as_texts(options, target)  # before the script runs
        # Alone, a rank builds its model in the first step.
        step = _STEP.value or (1 if alone is None else 2)
        programs = script.programs(path, args, target, _RANKS.value, step, alone=alone)
        reports = [
            report.of_sides(*report.sides(one, _TIMEOUT.value, options)) for one in programs[0]
        ]
    except (OSError, ValueError, capture.StepError, _aot.CompilerMissing) as error:
        return _failed(f"inspect: {error}")
    compared = ranks.of_programs(programs)
    verdict = compared.verdict
    if alone is not None:
        verdict = f"rank {alone} of {programs[0][0].world} on paper, for {target}"
    print(verdict, file=sys.stdout if _FORMAT.value == "text" else sys.stderr)
    _show_reports(reports)
    return 1 if compared.divergence or any(one.failure for one in reports) else 0


def _options(words: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE, each."""
    pairs = [word.partition("=") for word in words]
    for name, equals, _ in pairs:
        if not equals:
            raise ValueError(f"--option={name}: expected NAME=VALUE")
    return {name.lstrip("-"): value for name, _, value in pairs}


def _show_reports(reports: Sequence[Report]) -> None:
    if _FORMAT.value == "html":
        from torch_xla_cc._inspect import html

        print(html.page(reports))
    else:
        _show(reports)


def _run_compare(words: Sequence[str]) -> int:
    """Print both sides of each program; 1 if they are not equal, or cannot be read."""
    from torch_xla_cc._inspect import compare, dump, report

    if len(words) != 2:
        return _misused("compare: expected two folders or files")
    try:
        a, b = (report.of_path(word, _MODULE.value) for word in words)
    except dump.DumpError as error:
        return _failed(f"compare: {error}")
    found = compare.compare_all(a, b)
    _show(found)
    return 0 if all(made.equal for made in found) else 1


def _run_capabilities(words: Sequence[str]) -> int:
    """Print what becomes of each collective, for float32 and groups of the world."""
    from torch_xla_cc.capabilities import _grid, explain

    if words:
        return _misused("capabilities: expected --op and --target only")
    targets = [_TARGET.value] if _TARGET.value else list(_TARGETS)
    try:
        found = [
            explain(op, to) for op in ([_OP.value] if _OP.value else _grid.OPS) for to in targets
        ]
    except ValueError as error:
        return _misused(f"capabilities: {error}")
    if _FORMAT.value == "json":
        print(json.dumps([dict(vars(one), dtype=str(one.dtype)) for one in found], indent=2))
        return 0
    table = Table("op", "target", "rule", "emitted", "the compiler makes", "why")
    for one in found:
        emitted = ", ".join(one.opcodes)
        table.add_row(one.op, one.target, one.rule, emitted, one.becomes or "", one.why)
    _print(table)
    return 0


def _show(found: Sequence[Report] | Sequence[Comparison]) -> None:
    if _FORMAT.value == "json":
        print("[" + ",\n".join(one.to_json() for one in found) + "]")
        return
    for one in found:
        _print(one.table())


def _print(table: Table) -> None:
    # No markup: [aot] and folders of such names are text.
    Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH, markup=False).print(table)


def _failed(message: str) -> int:
    print(f"txcc {message}", file=sys.stderr)
    return 1


def _misused(message: str) -> int:
    print(f"txcc {message}. See txcc --help", file=sys.stderr)
    return 2


def _run_doctor(words: Sequence[str]) -> int:
    """Print what was found; 1 if something needs to be done."""
    if words:
        return _misused(f"doctor: expected no other word, but there is {words[0]!r}")
    findings = list(doctor.findings())
    if _FORMAT.value == "json":
        print(json.dumps([vars(finding) for finding in findings], indent=2))
    else:
        table = Table("", "", "what to do", show_header=False, box=None)
        for finding in findings:
            mark = Text("ok", style="green") if finding.well else Text("NO", style="red")
            remedy = "" if finding.well else finding.remedy
            table.add_row(mark, finding.subject, finding.found, remedy)
        Console(markup=False).print(table)
    return 0 if all(finding.well for finding in findings) else 1


_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "capabilities": _run_capabilities,
    "compare": _run_compare,
    "doctor": _run_doctor,
    "inspect": _run_inspect,
}


def _main(argv: Sequence[str]) -> int:
    if len(argv) < 2 or argv[1] not in _COMMANDS:
        print(__doc__, file=sys.stderr)
        return 2
    if _FORMAT.value == "html" and argv[1] != "inspect":
        return _misused(f"{argv[1]}: --format=html is for inspect")
    return _COMMANDS[argv[1]](argv[2:])


def main() -> None:
    """Entry point of `txcc`."""
    try:
        words = _FLAGS(sys.argv)
    except flags.Error as error:
        sys.exit(_misused(str(error)))
    if _HELP.value:
        print(f"{__doc__}\n{_FLAGS.module_help(__name__)}")
        sys.exit(0)
    sys.exit(_main(words))
