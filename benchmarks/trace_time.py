"""What a rank's host does for a step of Megatron-core with collectives, beside one without.

    PYTHONPATH=python python benchmarks/trace_time.py [--layers=4]

A GPT by torchrun on the pod, whose device is a process of its own: the CPU time of a rank's
process in a step is that of tracing it and handing it over, its backward pass on another thread
included. Two ranks with tensor and sequence parallelism, or data parallelism, beside one rank:
there groups have one rank, and calls make no nodes of the graph. Medians of the last half of the
steps, in rounds.
"""

from __future__ import annotations

import itertools
import os
import runpy
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLIENTS = ROOT / "examples/clients"
STEPS, ROUNDS, LIMIT_S = 30, 2, 300
KINDS = {
    "one rank": (1, []),
    "TP 2": (2, ["--tp=2"]),
    "TP 2, sequence parallel": (2, ["--tp=2", "--sequence-parallel=1"]),
    "DP 2": (2, []),
}


def child(arguments: list[str]) -> None:
    """One rank: the example, and its CPU time."""
    sys.path.insert(0, str(CLIENTS))
    import common  # type: ignore[import-not-found,unused-ignore]

    times: list[float] = []
    steps = common.Run.steps

    def timed(run: common.Run) -> Iterator[int]:
        for step in steps(run):
            times.append(time.process_time())
            yield step
        times.append(time.process_time())

    common.Run.steps = timed
    script = str(CLIENTS / "megatron_gpt.py")
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
    each = [after - before for before, after in itertools.pairwise(times)]
    if os.environ["RANK"] == "0":
        print(f"CPU ms of a step: {1000 * statistics.median(each[len(each) // 2 :])}", flush=True)


def measured(ranks: int, arguments: list[str]) -> float:
    """The CPU time of rank 0 in a step, in ms."""
    start = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    done = subprocess.run(
        [sys.executable, *start, __file__, "--child", f"--steps={STEPS}", *arguments],
        env={**os.environ, "PJRT_DEVICE": "POD", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    (line,) = [one for one in done.stdout.splitlines() if one.startswith("CPU ms")]
    return float(line.rpartition(" ")[2])


def main() -> None:
    """Print a row for each kind."""
    layers = next((x for x in sys.argv[1:] if x.startswith("--layers=")), "--layers=4")
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(ROUNDS):
        for kind, (ranks, arguments) in KINDS.items():
            found[kind].append(measured(ranks, [layers, *arguments]))
            print(f"{kind}: {found[kind][-1]:.0f} ms", flush=True)
    one = statistics.median(found["one rank"])
    for kind, times in found.items():
        each = ", ".join(f"{x:.0f}" for x in times)
        print(f"{kind}: {each} ms, {statistics.median(times) / one:.2f} of one rank", flush=True)


if __name__ == "__main__":
    child(sys.argv[2:]) if sys.argv[1:2] == ["--child"] else main()
