"""python -m torch_xla_cc.capabilities probe; shapes"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from torch_xla_cc.capabilities import _ahead, _measured, _pod, _shapes, _sides, _threads
from torch_xla_cc.capabilities._grid import DEVICES, Cell, Device, cells
from torch_xla_cc.capabilities._results import Probe, State


def _outcomes(device: Device, todo: Sequence[Cell], jobs: int) -> Iterator[list[Probe]]:
    if device.name == "cpu":
        return _threads.probe(device, todo)
    if device.name == "pod":
        return _pod.probe(device, todo)
    return _ahead.probe(device, todo, jobs)


def probe(
    devices: list[Device], state_path: Path, out: Path, jobs: int, again: bool = False
) -> None:
    """Compile all that the state file has not got yet, and write down what came of it.

    `again`: instead compare native and fallback once more, after a change to the fallbacks.
    """
    console = Console()
    state = State(state_path)
    todo = {
        device: [cell for cell in cells(device) if not again and cell not in state.done(device)]
        for device in devices
    }
    compare = {
        device: [
            cell
            for cell in (_sides.wanted() if _sides.is_compared(device) else ())
            if again or cell.op not in state.sides.get(str(device), {})
        ]
        for device in devices
    }
    console.print(f"{sum(map(len, todo.values()))} probes on {len(devices)} devices to go")
    columns = (
        TextColumn("{task.description:12}"), BarColumn(), MofNCompleteColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as progress:
        tasks = {
            device: progress.add_task(str(device), total=len(some) + len(compare[device]))
            for device, some in todo.items()
        }
        for device, some in todo.items():
            for probes in _outcomes(device, some, jobs):
                state.add(device, probes)
                progress.advance(tasks[device], len(probes))
            for cell in compare[device]:
                state.add_side(device, _sides.compare(cell, device))
                progress.advance(tasks[device])
            if not console.is_terminal:
                console.print(f"{device}: {len(some)} probed, {len(compare[device])} compared")
    found = _measured.from_state(state)
    if out.exists():
        # What this run was not asked for stays, unless it comes from other compilers.
        found.keep(_measured.load(out))
    if not found.cells:
        raise SystemExit(f"{out} comes from other compilers: probe without --sides-again first")
    _measured.save(found, out)
    console.print(f"Wrote {out}")


def shapes(targets: list[str]) -> None:
    """Compile the main ops in all shapes; what other targets had stays."""
    console = Console()
    found = _shapes.load()[1] if _shapes.PATH.exists() else {}
    for target in targets:
        console.print(f"{target}: {len(_shapes.probes())} programs")
        found[target] = dict(_shapes.run(target, _shapes.probes()))
    _shapes.save({target: found[target] for target in _shapes.TARGETS if target in found})


def _jobs(text: str) -> int:
    jobs = int(text)
    if jobs < 1:
        raise argparse.ArgumentTypeError(f"{jobs}, but it must be a number of compilers, from 1")
    return jobs


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m torch_xla_cc.capabilities", description=__doc__
    )
    commands = parser.add_subparsers(dest="command", required=True)
    prober = commands.add_parser("probe", help="compile everything with the real compilers")
    names = [str(device) for device in DEVICES]
    prober.add_argument(
        "--targets", nargs="+", choices=names, default=names, metavar="DEVICE/RANKS"
    )
    prober.add_argument("--jobs", type=_jobs, default=1, help="compilers at a time")
    prober.add_argument(
        "--sides-again", action="store_true", help="only compare native and fallback once more"
    )
    prober.add_argument("--state", type=Path, default=Path("build/probe.jsonl"))
    prober.add_argument("--out", type=Path, default=_measured.PATH)
    by_shape = commands.add_parser("shapes", help="compile the main ops in many shapes and sizes")
    by_shape.add_argument(
        "--targets", nargs="+", choices=_shapes.TARGETS, default=_shapes.TARGETS, metavar="TARGET"
    )
    chosen = parser.parse_args(arguments)
    if chosen.command == "shapes":
        shapes(chosen.targets)
        return 0
    if chosen.state.resolve() == chosen.out.resolve():
        prober.error(f"--state and --out are both {chosen.out}. Name two files")
    for option, path, read in (("state", chosen.state, State), ("out", chosen.out, _measured.load)):
        try:  # hours before it would be written
            path.parent.mkdir(parents=True, exist_ok=True)
            if not os.access(path if path.exists() else path.parent, os.W_OK):
                raise PermissionError("it cannot be written")
            if path.exists():
                read(path)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            prober.error(
                f"--{option} {path}: {type(error).__name__}: {error}. Name a file of its own"
            )
    devices = [device for device in DEVICES if str(device) in chosen.targets]
    probe(devices, chosen.state, chosen.out, chosen.jobs, chosen.sides_again)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
