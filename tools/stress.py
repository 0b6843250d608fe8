"""Looks for tests that fail now and then: runs those marked `concurrent` many times, under load.

    PYTHONPATH=python .venv/bin/python tools/stress.py [--runs 20] [--load 2] [arguments of pytest]

One line a run, and what failed with its output. The load are processes that compute and nothing
else, so that threads are held up where they seldom are.
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def compute() -> None:
    while True:
        sum(range(1_000_000))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--load", type=int, default=2, help="processes that compute (2)")
    args, others = parser.parse_known_args()
    for _ in range(args.load):
        multiprocessing.Process(target=compute, daemon=True).start()  # they end with this one
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile"]
    command += ["-m", "concurrent", "-p", "no:cacheprovider", *others]
    failures = 0
    for run in range(args.runs):
        begin = time.monotonic()
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        last = ended.stdout.strip().rpartition("\n")[2]
        print(f"{run + 1:3} {time.monotonic() - begin:6.0f} s  {last}", flush=True)
        if ended.returncode != 0:
            failures += 1
            print(ended.stdout + ended.stderr, flush=True)
    print(f"{failures} of {args.runs} runs failed")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
