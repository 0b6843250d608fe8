"""All benchmarks; prints tables and, with --write, keeps them in docs/benchmarks.md, with pictures.

make bench        or        python benchmarks/run.py [--write]

Words of titles select tables, to print only: python benchmarks/run.py lists
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
import optimizer_trace
import pictures

HERE = Path(__file__).parent
REPORT = HERE.parent / "docs" / "benchmarks.md"
Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]

_LISTS = (
    "op",
    "ranks",
    "size a rank",
    "ms, tensor",
    "ms, chunks of one",
    "ms, separate tensors",
    "ratio, chunks to tensor",
    "ratio, separate to chunks",
)

# Columns, and code for processes of their own: a process has one number of devices.
_SCRIPTS: dict[str, tuple[tuple[str, ...], list[str]]] = {
    pictures.HOST: (
        ("op", "us, ours", "us, torch_xla", "ratio"),
        ["import host_cost as b; rows = b.run()"],
    ),
    "Host cost of a call of torch.distributed, one device": (
        (
            "op",
            "us, ours",
            "us, ours, of eight ranks",
            "us, fake",
            "us, torch_xla",
            "ratio",
            "ratio, of eight",
            "ratio, fake to torch_xla",
        ),
        ["import process_group as b; rows = b.host_cost()"],
    ),
    pictures.GLOO: (
        (
            "op",
            "size a rank",
            "ms, ours",
            "ms, ours, not compared",
            "ms, gloo",
            "ratio",
            "ratio, not compared",
        ),
        ["import between_processes as b; rows = b.against_gloo()"],
    ),
    "What comparing calls costs: all_reduce between four processes on CPU": (
        ("size a rank", "TORCH_XLA_CC_CHECK", "ms a call", "ratio to off"),
        ["import between_processes as b; rows = b.check_cost()"],
    ),
    "Lists that are chunks of one buffer, ranks on CPU threads": (
        _LISTS,
        [f"import lists as b; rows = b.on_threads({n})" for n in (4, 8)],
    ),
    "Lists that are chunks of one buffer, four processes on CPU": (
        _LISTS,
        ["import lists as b; rows = b.on_processes()"],
    ),
    "Forty gradients added to views of one flat buffer, one CPU device": (
        (
            "views",
            "s, first step, torch_xla",
            "s, first step, ours",
            "ms a step, torch_xla",
            "ms a step, ours",
            "ratio",
        ),
        [f"import flat_buffers as b; rows = b.run({kind!r})" for kind in ("slices", "as_strided")],
    ),
    "To trace an optimizer's step of forty parameters, one CPU device": (
        ("optimizer", "ms, torch_xla", "ms, ours", "ratio"),
        [
            f"import optimizer_trace as b; rows = b.run({name!r})"
            for name in optimizer_trace.OPTIMIZERS
        ],
    ),
    "Compiles of one program, ten steps": (
        ("ranks", "compiles"),
        [f"import compiles as b; rows = [('{n}', str(b.run({n})))]" for n in (4, 8)],
    ),
    "A step without a collective, four CPU devices": (
        ("by", "us a step"),
        [f"import empty_step as b; rows = b.run({side!r})" for side in empty_step.SIDES],
    ),
    pictures.JAX: (
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


def tables(words: list[str]) -> list[Table]:
    """Every benchmark's table, or those that have one of the words in their titles."""
    found: list[Table] = []
    for title, (columns, codes) in _SCRIPTS.items():
        if words and not any(word.lower() in title.lower() for word in words):
            continue
        print(f"... {title}", file=sys.stderr, flush=True)
        found.append((title, columns, [row for code in codes for row in _python(code)]))
    if words:
        return found
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
- Chunks of one buffer are written, or read, as that buffer: "ratio, chunks to tensor" is the cost
  of seeing that they are. Separate tensors are copied to or from what the collective has.
- "Fake" is PyTorch's backend of that name on CPU tensors, which carries nothing out: what the way
  through torch.distributed costs alone. The aim for the host cost of a call on one device is 0.6 of
  torch_xla's. Rows above it miss it; where "fake" is above it, no backend can meet it.
- The aim against gloo on CPU tensors is 1.3. "Not compared" is with TORCH_XLA_CC_CHECK=off.
- Comparing calls between processes is a message to the store of the group, an answer, and one more
  when all ranks have come, to all but the last. "full" sends no more than "fingerprint", and
  compares file and line too.
- collective_permute, all_to_all, send and recv are decompositions on CPU threads: all_gathers, of
  everything or between pairs of ranks, and cost that ([capabilities.md](capabilities.md)).
- What compilers make of whole programs for TPU and GPU, beside JAX's: [compiled.md](compiled.md).
"""


def markdown(found: list[Table]) -> str:
    """The report."""
    lines = [
        "# Benchmarks",
        "",
        "What calls and steps cost on CPU devices, beside torch_xla, gloo and JAX on that machine.",
        "Written by `python benchmarks/run.py --write`; do not edit. Ratios are to the other side "
        "in the same run: below 1 is faster.",
        "",
        f"{date.today()}, {os.cpu_count()} cores, load at the end "
        f"{os.getloadavg()[0]:.1f}, Python {platform.python_version()}.",
    ]
    for title, columns, rows in found:
        lines += ["", f"## {title}", *pictures.shown(title)]
        lines += ["", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n" + NOTES


def main() -> None:
    """Run all, print, and write if asked."""
    words = [argument for argument in sys.argv[1:] if argument != "--write"]
    write = "--write" in sys.argv[1:]
    if words and write:
        sys.exit("run.py: the report is written as a whole, by one run. Leave out the words")
    report = markdown(tables(words))
    print(report)
    if write:
        REPORT.write_text(report)
        pictures.draw(REPORT.name)


if __name__ == "__main__":
    main()
