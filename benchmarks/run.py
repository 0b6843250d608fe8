"""All benchmarks; prints tables and, with --write, keeps them in docs/benchmarks.md.

make bench        or        python benchmarks/run.py [--write]
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path

import empty_step

HERE = Path(__file__).parent
REPORT = HERE.parent / "docs" / "benchmarks.md"
Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]

# Columns, and code for processes of their own: a process has one number of devices.
_SCRIPTS: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "Host cost of a call, one device": (
        ("op", "us, ours", "us, torch_xla", "ratio"),
        ["import host_cost as b; rows = b.run()"],
    ),
    "Host cost of a call of torch.distributed, one device": (
        (
            "op",
            "us, ours",
            "us, ours, of eight ranks",
            "us, torch_xla",
            "ratio",
            "ratio, of eight",
        ),
        ["import process_group as b; rows = b.host_cost()"],
    ),
    "Four processes on CPU against gloo on CPU tensors": (
        ("op", "size a rank", "ms, ours", "ms, gloo", "ratio"),
        ["import process_group as b; rows = b.against_gloo()"],
    ),
    "Compiles of one program, ten steps": (
        ("ranks", "compiles"),
        [f"import compiles as b; rows = [('{n}', str(b.run({n})))]" for n in (4, 8)],
    ),
    "A step without a collective, four CPU devices": (
        ("by", "us a step"),
        [f"import empty_step as b; rows = b.run({side!r})" for side in empty_step.SIDES],
    ),
    "Four CPU devices against jax.shard_map": (
        (
            "op",
            "size a device",
            "ms a step",
            "JAX",
            "ratio",
            "ms a further one",
            "JAX",
            "ratio",
        ),
        ["import against_jax as b; rows = b.run()"],
    ),
}


def _python(code: str) -> object:
    """What the code leaves in `rows`, from a process of its own."""
    script = f"{code}\nimport json; print('ROWS' + json.dumps(rows))"
    environment = dict(os.environ, PJRT_DEVICE="CPU")
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=HERE,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        timeout=1800,
        check=True,
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("ROWS"))
    return json.loads(line[len("ROWS") :])


def tables() -> list[Table]:
    """Every benchmark's table."""
    found: list[Table] = []
    for title, (columns, codes) in _SCRIPTS.items():
        print(f"... {title}", file=sys.stderr, flush=True)
        found.append((title, columns, [row for code in codes for row in _python(code)]))
    lowering = _python("import lowering as b; rows = [[t, c, r] for t, (c, r) in b.run().items()]")
    found += [(title, columns, rows) for title, columns, rows in lowering]
    return found


NOTES = """
## How to read them

- A step on four CPU devices is four threads of torch_xla, which trace, meet, run and wait, and take
  turns for the interpreter lock; JAX runs a compiled function on four devices from one thread. What
  that costs alone is in the table of a step without a collective.
- The aims against JAX are, for all_gather, reduce_scatter and all_reduce: one a step at most 2.5 at
  4 KiB and 2.0 above, a further one at most 1.1 at 1 MiB and 16 MiB. Rows above them miss them.
- A further collective in a step costs each of our ranks its tracing; JAX has traced before.
- These are figures of one run. Those of large results differ most between runs.
- A group of one rank meets nobody, and no node is made for its calls. "Of eight ranks" is what a
  call costs that has seven others to meet: traced for a TPU, with the check between ranks, and not
  run.
- Of a call of torch.distributed, 4 to 6 us are PyTorch's own Python.
- collective_permute, all_to_all, send and recv are decompositions on CPU threads: all_gathers, of
  everything or between pairs of ranks, and cost that ([capabilities.md](capabilities.md)).
"""


def markdown(found: list[Table]) -> str:
    """The report."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `python benchmarks/run.py --write`. Ratios are against the peer in the same "
        "run; below 1 is faster than it.",
        "",
        f"{date.today()}, {os.cpu_count()} cores, load at the end "
        f"{os.getloadavg()[0]:.1f}, Python {platform.python_version()}.",
    ]
    for title, columns, rows in found:
        lines += ["", f"## {title}", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n" + NOTES


def main() -> None:
    """Run all, print, and write if asked."""
    report = markdown(tables())
    print(report)
    if "--write" in sys.argv[1:]:
        REPORT.write_text(report)


if __name__ == "__main__":
    main()
