"""The package torch_xla_cc: imported whole, which takes seconds, or in part, without torch."""

from __future__ import annotations

import contextlib
import importlib
import logging
import sys
import types
from collections.abc import Iterator
from pathlib import Path

from txcc.output import Failure
from txcc.progress import working

_NAME = "torch_xla_cc"


class StandIn(types.ModuleType):
    """In place of the package: its folders are found, and nothing is imported for training.

    `problem`: why the package itself cannot be imported, and `remedy`, for `txcc doctor`.
    """

    def __init__(self, problem: str = "", remedy: str = "") -> None:
        super().__init__(_NAME)
        self.problem = problem
        self.remedy = remedy
        self.__path__ = [str(Path(__file__).parents[1] / _NAME)]


def load() -> None:
    """Import it whole. Failure if that is not possible."""
    problem, _ = try_to_load()
    if problem:
        raise Failure(problem)


def try_to_load() -> tuple[str, str]:
    """Import it whole; why that is not possible and what to do about it, or empty texts."""
    _forget_stand_in()
    # torch_xla says on import which device it takes. That is for scripts; here it is the commands'
    # own choice, or `txcc doctor` says it.
    logging.getLogger().addFilter(
        lambda record: not record.getMessage().startswith("Defaulting to PJRT_DEVICE")
    )
    with working("Importing PyTorch and PyTorch/XLA"):
        try:
            importlib.import_module(_NAME)
        # The last two are what a broken wheel raises.
        except (ImportError, OSError, RuntimeError) as error:
            well_said = "Run: " in str(error)
            return str(error), "what it says" if well_said else "make build, or install it again"
        except ValueError as error:  # a variable of the environment
            return str(error), "set it to one of those, or not at all"
    return "", ""


def stand_in(problem: str = "", remedy: str = "") -> None:
    """Have modules of the package be importable that need no torch."""
    if problem or _NAME not in sys.modules:
        sys.modules[_NAME] = StandIn(problem, remedy)


@contextlib.contextmanager
def in_parts() -> Iterator[None]:
    """Around imports of its modules: what these lack is a Failure."""
    try:
        yield
    except ImportError as error:
        raise Failure(str(error)) from error


def _forget_stand_in() -> None:
    if isinstance(sys.modules.get(_NAME), StandIn):
        for name in [name for name in sys.modules if name.partition(".")[0] == _NAME]:
            del sys.modules[name]
