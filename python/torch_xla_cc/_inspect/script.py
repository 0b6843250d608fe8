"""A user's script, run up to one of its steps."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch_xla
from torch_xla.distributed import xla_multiprocessing

from .._runtime.endings import result_of
from .._runtime.environment import number
from .._runtime.patches import changes
from .._runtime.private import pjrt
from .._threads.worlds import this_rank
from ..adapters._torch_xla import installed
from ..distributed._paper import on_paper
from .capture import Capture, Captured, StepError
from .ranks import Programs, world_of

_OF_RANKS = ("RANK", "LOCAL_RANK")
_NO_RANKS = (
    "It has launched no ranks. If it is to be started once a rank, as torchrun does, say how many "
    "there are: txcc inspect --ranks=4"
)


def programs(
    path: str,
    args: Sequence[str],
    target: str,
    ranks: int | None,
    step: int,
    timeout_s: float | None = None,
    ran: Callable[[int], None] | None = None,
    alone: int | None = None,
) -> list[Programs]:
    """What each rank would run in the script's `step`-th step that has collectives.

    Args:
      path: a script that launches its ranks, with torch_xla_cc.launch, torch_xla.launch,
        xla_multiprocessing.spawn or pjrt.spawn_threads. They become threads on virtual CPU
        devices, under install().
      args: its arguments.
      target: what the step is traced for.
      ranks: run the script once a rank, as torchrun does, if given.
      ran: called with the number of steps with collectives that rank 0 has run, after each.
      alone: run the script once, as this rank, in a dry-run world. It may launch its ranks, or be
        one of torchrun.
    """
    title = f"{Path(path).name}, step {step}"
    try:
        code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise StepError(f"{path}:{error.lineno}: {error.msg}") from None
    found: list[Programs] = []
    launched = False
    failed: list[BaseException] = []

    def capture(fn: Callable[..., Any], fn_args: Sequence[Any], nprocs: int | None) -> None:
        nonlocal launched
        if launched:
            raise Captured  # the script has caught it, and launches again
        launched = True
        try:
            take(fn, fn_args, nprocs)
        except SystemExit as ended:
            failed.append(StepError(f"{title}: a rank has ended with {ended.code}"))
            raise failed[0] from ended
        except BaseException as error:
            failed.append(error)
            raise
        raise Captured

    def take(fn: Callable[..., Any], fn_args: Sequence[Any], nprocs: int | None) -> None:
        try:
            world = world_of(target, nprocs or number("CPU_NUM_DEVICES", 0) or None)
        except ValueError as error:
            raise StepError(str(error)) from None
        found.extend(Capture(title, target, world, step, timeout_s, ran).run(fn, fn_args))

    if alone is not None:
        world = world_of(target, ranks)

        def call(fn: Callable[..., Any], fn_args: Sequence[Any], nprocs: int | None) -> None:
            world_of(target, nprocs)
            result_of(fn, alone, *fn_args)

        with (
            _as_main(path, args),
            on_paper(alone, world),
            _environments(world, alone),
            _launches(call),
        ):
            capturing = Capture(title, target, world, step, timeout_s, ran, alone)
            return capturing.run(lambda _: _run(code, path))

    with _as_main(path, args), contextlib.suppress(Captured):
        if ranks is not None:
            with _environments(ranks):
                capture(lambda rank: _run(code, path), (), ranks)
        try:
            with _launches(capture):
                _run(code, path)
        except Exception as error:
            if not launched:
                if hasattr(error, "add_note"):  # Python 3.11
                    error.add_note(_NO_RANKS)
                raise
            if failed:
                raise failed[0] from None
            raise Captured from None  # it went on without what its ranks would have given it
        if failed:
            raise failed[0]  # the script has caught it
        if launched:
            raise Captured
        raise StepError(f"{title}: the script has ended. {_NO_RANKS}")
    return found


def raised_in(path: str, error: BaseException) -> bool:
    """Whether lines of the script were being run."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code.co_filename == path for frame, _ in frames)


def _run(code: types.CodeType, path: str) -> None:
    main = types.ModuleType("__main__")
    main.__file__ = path
    sys.modules["__main__"] = main
    try:
        exec(code, vars(main))
    except SystemExit as ended:
        if ended.code:
            raise StepError(f"the script has ended with {ended.code}") from ended


@contextlib.contextmanager
def _as_main(path: str, args: Sequence[str]) -> Iterator[None]:
    """What holds while a script runs as the main one."""
    before = list(sys.argv), list(sys.path), sys.modules["__main__"]
    sys.argv = [path, *args]
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        # What it prints is no part of the report.
        with installed(), contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.argv, sys.path, sys.modules["__main__"] = before


@contextlib.contextmanager
def _launches(
    capture: Callable[[Callable[..., Any], Sequence[Any], int | None], None],
) -> Iterator[None]:
    """Have the functions that launch ranks do that instead."""

    def ours(
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        nprocs: int | None = None,
        **others: Any,  # noqa: ANN401 (such as how long ranks wait, and how processes start)
    ) -> None:
        capture(fn, args, nprocs)

    def theirs(
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        start_method: str = "spawn",
        debug_single_process: bool = False,
    ) -> None:
        capture(fn, args, 1 if debug_single_process else None)

    # The package itself, which is above this folder: scripts call its `launch`.
    package = sys.modules[__package__.partition(".")[0]]
    with changes("torch_xla_cc.inspect") as made:
        made.put(package, "launch", ours)
        made.put(torch_xla, "launch", theirs)
        made.put(xla_multiprocessing, "spawn", ours)
        made.put(pjrt, "spawn_threads", ours)
        yield


class _Environment(os._Environ):  # type: ignore[type-arg]
    """os.environ, where some variables are of the rank that asks."""

    def __getitem__(self, name: str) -> str:
        rank = this_rank()
        return str(super().__getitem__(name) if rank is None or name not in _OF_RANKS else rank)


@contextlib.contextmanager
def _environments(ranks: int, rank: int = 0) -> Iterator[None]:
    """The variables that torchrun sets. Of `rank`, where ranks are not threads."""
    shared = {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "0",
        **dict.fromkeys(_OF_RANKS, str(rank)),
    }
    before = dict(os.environ)
    plain = type(os.environ)
    os.environ.update(shared)
    os.environ.__class__ = _Environment
    try:
        yield
    finally:
        os.environ.__class__ = plain
        # No more than has changed: threads of XLA may read the environment.
        for name in set(os.environ) - set(before):
            if name in shared:
                del os.environ[name]
        os.environ.update({k: v for k, v in before.items() if os.environ.get(k) != v})
