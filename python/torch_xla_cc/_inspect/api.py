"""torch_xla_cc.inspect and the assertions made of it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from .._aot import Options
from .._hlo.collectives import Finder
from .._hlo.opcodes import COLLECTIVES
from . import copies, trace
from .compiled import Compiled, check_target
from .ranks import compare_ranks as compare_ranks
from .report import Report, of_sides, sides
from .rows import Row
from .words import places

_TIMEOUT_S = 120.0


def inspect(
    what: Any,  # noqa: ANN401 (a function, or any structure of tensors)
    /,
    *args: Any,  # noqa: ANN401 (the function's)
    target: str | None = None,
    world_size: int | None = None,
    timeout_s: float = _TIMEOUT_S,
    options: Options | None = None,
    **kwargs: Any,  # noqa: ANN401 (the function's)
) -> Report:
    """Report what the compiler makes of the collectives of a function, or of pending tensors.

    Args:
      what: a function, which is called once with `args` and `kwargs` to trace it, such as a step
        of training; or XLA tensors in any structure, for the program that is pending for them.
        Nothing of it runs. XLA tensors hold afterwards what they held before; what a function
        changes beside them stays changed.
      target: `"tpu:v5e:2x4"`, `"gpu:h100x8"`, `"cpu"`; the running device if None.
      world_size: the number of ranks; that of the target's topology if None.
      timeout_s: how long the compiler may take. Its failure is in the report.
      options: the compiler's own, by name: `{"xla_tpu_enable_async_all_to_all": True}`. One that it
        does not know, or that is for another kind of device, is a ValueError.
    """
    return of_sides(*_sides(what, args, kwargs, target, world_size, timeout_s, options))


def assert_lowers_to(
    what: Any,  # noqa: ANN401 (as inspect)
    opcode: str | Mapping[str, int],
    /,
    *args: Any,  # noqa: ANN401 (as inspect)
    count: int = 1,
    target: str | None = None,
    world_size: int | None = None,
    timeout_s: float = _TIMEOUT_S,
    options: Options | None = None,
    **kwargs: Any,  # noqa: ANN401 (as inspect)
) -> Report:
    """AssertionError unless the compiled program has `count` of a collective opcode.

    With a mapping, such as `{"all-gather": 1, "reduce-scatter": 1}`, unless it has these and no
    other. The rest is as for `inspect`; the report is returned.
    """
    for name, number in opcode.items() if isinstance(opcode, Mapping) else ((opcode, count),):
        _check_opcode("assert_lowers_to", name)
        _check_count("assert_lowers_to", number)
    report = inspect(
        what,
        *args,
        target=target,
        world_size=world_size,
        timeout_s=timeout_s,
        options=options,
        **kwargs,
    )
    found = report.counts
    wanted = Counter(dict(opcode) if isinstance(opcode, Mapping) else {opcode: count})
    of_others = set(found) - set(wanted) if isinstance(opcode, Mapping) else set()
    wrong = [
        f"{name}: expected {wanted[name]}, found {found[name]}"
        for name in sorted({*wanted, *of_others})
        if wanted[name] != found[name]
    ]
    if report.failure:
        wrong = [f"there is no compiled program: {report.failure}"]
    if wrong:
        raise AssertionError("\n".join([*wrong, report.to_text()]))
    return report


def assert_overlaps(
    what: Any,  # noqa: ANN401 (as inspect)
    /,
    *args: Any,  # noqa: ANN401 (as inspect)
    opcode: str | None = None,
    count: int | None = None,
    target: str | None = None,
    world_size: int | None = None,
    timeout_s: float = _TIMEOUT_S,
    options: Options | None = None,
    **kwargs: Any,  # noqa: ANN401 (as inspect)
) -> Report:
    """AssertionError unless the collectives of the compiled program run beside a computation.

    All of an opcode, such as "all-gather", or of any if None; or at least `count` of them. What is
    done before memory could move the bytes that a rank receives does not count. It names those that
    wait, with their lines. The rest is as for `inspect`; the report is returned.
    """
    if opcode is not None:
        _check_opcode("assert_overlaps", opcode)
    if count is not None:
        _check_count("assert_overlaps", count)
    report = of_sides(*_sides(what, args, kwargs, target, world_size, timeout_s, options))
    if report.failure:
        raise AssertionError(f"there is no compiled program: {report.failure}")
    found = [row for row in report.rows if row.compiled and opcode in (None, row.after)]
    waiting = [row for row in found if not row.overlaps]
    wanted = max(len(found), 1) if count is None else count
    overlapped = len(found) - len(waiting)
    if overlapped < wanted:
        name = opcode or "collective"
        lines = [
            f"{name}: expected {wanted} beside a computation, found {overlapped} of {len(found)}",
            *map(_waits, waiting),
        ]
        raise AssertionError("\n".join([*lines, report.to_text()]))
    return report


def assert_no_copy(
    what: Any,  # noqa: ANN401 (as inspect)
    /,
    *args: Any,  # noqa: ANN401 (as inspect)
    target: str | None = None,
    world_size: int | None = None,
    timeout_s: float = _TIMEOUT_S,
    options: Options | None = None,
    **kwargs: Any,  # noqa: ANN401 (as inspect)
) -> Report:
    """AssertionError if the compiled program copies what a collective takes or gives.

    That is: if between a collective and what computes its operands, or computes with its results,
    data is copied, transposed, concatenated, padded or cut; or if it has no collective. As for
    `inspect` otherwise.
    """
    sides = _sides(what, args, kwargs, target, world_size, timeout_s, options)
    report = of_sides(*sides)
    if report.failure:
        raise AssertionError(f"there is no compiled program: {report.failure}")
    if not any(row.compiled for row in report.rows):
        raise AssertionError(f"there is no collective in the program\n{report.to_text()}")
    found = copies.around_collectives(sides[2])
    if found:
        lines = [
            f"{copy.opcode} {copy.shape} {side} {one.opcode} {one.name}"
            + (f" of {one.source.file}:{one.source.line}" if one.source.file else "")
            for copy, side, one in found
        ]
        raise AssertionError("\n".join(["expected no copy; found", *lines, report.to_text()]))
    return report


def _check_opcode(function: str, opcode: object) -> None:
    """One that is misspelt is found nowhere, and `count=0` would take that for what it wants."""
    if not isinstance(opcode, str) or opcode not in COLLECTIVES:
        raise ValueError(
            f"{function}: opcode = {opcode!r}, but it must be a collective of HLO: "
            f"{', '.join(sorted(COLLECTIVES))}"
        )


def _check_count(function: str, count: object) -> None:
    if not isinstance(count, int) or isinstance(count, bool):
        raise TypeError(
            f"{function}: count is {type(count).__name__}, but it must be an int: a number of "
            "collectives"
        )
    if count < 0:
        raise ValueError(f"{function}: count = {count}, but it must be a number of collectives")


def _waits(row: Row) -> str:
    says = f"{row.after} {row.name} of {places(row) or 'no known line'} waits"
    if row.meanwhile:
        says += f": what computes meanwhile is worth {row.beside_bytes:,} bytes, "
        says += f"and {row.wire_bytes:,} come"
    return says


def _sides(
    what: Any,  # noqa: ANN401 (as inspect)
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    target: str | None,
    world_size: int | None,
    timeout_s: float,
    options: Options | None,
) -> tuple[trace.Traced, Finder, Compiled]:
    """A traced program, its collectives, and what a compiler made of it."""
    if target is not None and not isinstance(target, str):
        raise TypeError(
            f"inspect: target is {type(target).__name__}, but it must be a string, such as "
            "'tpu:v5e:2x4', or None"
        )
    if target is not None:
        check_target(target)
    if not isinstance(timeout_s, (int, float)):
        raise TypeError(
            f"inspect: timeout_s is {type(timeout_s).__name__}, but it must be a number of seconds"
        )
    if not 0 < timeout_s <= threading.TIMEOUT_MAX:
        raise ValueError(
            f"inspect: timeout_s = {timeout_s}, but it must be a number of seconds above 0, and at "
            f"most {threading.TIMEOUT_MAX:.0f}"
        )
    if callable(what):
        title = getattr(what, "__qualname__", type(what).__name__)
        traced = trace.of_call(title, lambda: what(*args, **kwargs), target, world_size)
    elif args or kwargs:
        raise TypeError(
            f"inspect: {type(what).__name__} and more arguments, but only a function takes those. "
            "Pass a function, or one structure of tensors"
        )
    elif target is not None or world_size is not None:
        raise ValueError(
            f"inspect: target = {target!r}, world_size = {world_size!r}, but these tensors have "
            "been traced already. Pass the function that makes them"
        )
    else:
        traced = trace.of_tensors(what)
    return sides(traced, timeout_s, options)
