"""docs/compiled.md, of the compiled programs that are kept."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import TypeAlias

import compiled_programs as programs
import pictures
from compiled_figures import Figures, of_files
from compiled_notes import NOTES

REPORT = Path(__file__).parent.parent / "docs" / "compiled.md"
_PACKAGES = ("torch", "torch_xla", "jax", "libtpu", "jax-cuda12-pjrt")
Pair: TypeAlias = tuple[Figures | str, Figures | str]  # ours, JAX's; why there is none
Kept: TypeAlias = dict[tuple[str, str], Pair]  # by target and program

# The aims: ratios at most.
_LINK, _PEAK = 1.0, 1.02


def stem(kept: Path, target: str, name: str, side: str) -> Path:
    """How the files of a program begin."""
    return kept / target.replace(":", "_") / f"{name.replace(' ', '_')}_{side}"


def all_of(kept: Path, targets: Iterable[str]) -> Kept:
    """What has been compiled."""
    found: Kept = {}
    for target in targets:
        ranks, _ = programs.mesh(target)
        for name in (program.name for program in programs.PROGRAMS):
            stems = [stem(kept, target, name, side) for side in ("ours", "jax")]
            if all(one.with_suffix(".json").exists() for one in stems):
                ours, jax = (of_files(one, target, ranks) for one in stems)
                found[target, name] = ours, jax
    return found


def misses(ours: Figures, jax: Figures) -> list[str]:
    """The aims that a row misses."""
    found = []
    if ours.link > _LINK * jax.link:
        found.append("link")
    if ours.peak > _PEAK * jax.peak:
        found.append("peak")
    if ours.helped < jax.helped:
        found.append("helped, but fewer bytes wait" if ours.waiting < jax.waiting else "helped")
    return found


def _ratio(ours: float | None, jax: float | None) -> str:
    return f"{ours / jax:.3f}" if ours is not None and jax else "-"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return ["", *lines, *(f"| {' | '.join(row)} |" for row in rows)]


def _summary(
    found: Kept, targets: Iterable[str], cell: Callable[[Figures, Figures], str]
) -> list[str]:
    """A cell for each program and target."""

    def one(target: str, name: str) -> str:
        ours, jax = found.get((target, name), ("", ""))
        if isinstance(ours, str) or isinstance(jax, str):
            return "failed" if (target, name) in found else "not compiled"
        return cell(ours, jax)

    present = [target for target in targets if any(target == at for at, _ in found)]
    return _table(
        ("program", *present),
        [(p.name, *(one(target, p.name) for target in present)) for p in programs.PROGRAMS],
    )


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


_COUNTS = ("alone", "combined", "beside", "waiting", "helped", "added", "bytes waiting")
_BYTES = ("link", "wire", "peak", "hbm")


def _bytes(name: str, ours: Figures, jax: Figures) -> list[str]:
    cells = [name]
    for figure in _BYTES:
        pair = getattr(ours, figure), getattr(jax, figure)
        cells += [*(_number(one) for one in pair), _ratio(*pair)]
    return cells


def _counts(name: str, ours: Figures, jax: Figures) -> list[str]:
    cells = [name]
    for side in (ours, jax):
        cells += [str(side.instructions), str(side.alone), str(side.combined)]
        cells += [str(side.overlapped), str(side.waits)]
        cells += [f"{side.helped} of {side.calls}", str(side.added), _number(side.waiting)]
    return [*cells, ", ".join(misses(ours, jax)) or "none"]


def _of_target(found: Kept, target: str) -> list[str]:
    some = {name: pair for (at, name), pair in found.items() if at == target}
    made = [
        (name, ours, jax)
        for name, (ours, jax) in some.items()
        if isinstance(ours, Figures) and isinstance(jax, Figures)
    ]
    lines = [
        f"## {target}",
        *_table(
            (
                "program",
                *("link, ours", "JAX", "ratio", "wire, ours", "JAX", "ratio"),
                *("peak, ours", "JAX", "ratio", "HBM, ours", "JAX", "ratio"),
            ),
            [_bytes(*row) for row in made],
        ),
        *_table(
            (
                "program",
                *("ours: all", *_COUNTS),
                *("JAX: all", *_COUNTS),
                "aims missed",
            ),
            [_counts(*row) for row in made],
        ),
    ]
    failures = [
        f"- {name}, {side}: no program: {failure}"
        for name, pair in some.items()
        for side, failure in zip(("ours", "JAX"), pair, strict=True)
        if isinstance(failure, str)
    ]
    return ["", *lines, *(("", *failures) if failures else ())]


def _helped(ours: Figures, jax: Figures) -> str:
    return f"{ours.helped} of {ours.calls} / {jax.helped} of {jax.calls}"


def markdown(kept: Path, targets: tuple[str, ...]) -> str:
    """The page."""
    found = all_of(kept, targets)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES)
    lines = [
        "# Whole programs beside JAX",
        "",
        "Look up here how compiled programs of common ways to train compare with JAX's: bytes, "
        "memory",
        "and what overlaps. Generated by `python benchmarks/compiled.py --write`; do not edit.",
        f"{date.today()}; {versions}.",
        NOTES.rstrip(),
    ]
    lines += ["", f"## {pictures.LINK}", *pictures.shown(pictures.LINK)]
    lines += _summary(found, targets, lambda ours, jax: _ratio(ours.link, jax.link))
    lines += ["", "## Peak memory, ratio to JAX's"]
    lines += _summary(found, targets, lambda ours, jax: _ratio(ours.peak, jax.peak))
    lines += ["", "## HBM bytes, ratio to JAX's"]
    lines += _summary(found, targets, lambda ours, jax: _ratio(ours.hbm, jax.hbm))
    lines += ["", "## Calls that are combined or run beside a computation, ours / JAX's"]
    lines += _summary(found, targets, _helped)
    lines += ["", "## Bytes that a rank receives while nothing computes, ratio to JAX's"]
    lines += _summary(found, targets, lambda ours, jax: _ratio(ours.waiting, jax.waiting))
    for target in targets:
        if any(target == at for at, _ in found):
            lines += _of_target(found, target)
    return "\n".join(lines) + "\n"
