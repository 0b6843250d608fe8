"""Whose program it is, in traces of torch_xla's profiler.

A thread of one rank may hand the programs of all to their devices, and events of XLA:CPU do not
say which device they are of. `txcc profile` finds it by an event around what hands a program over;
and by another how long a rank waits for the others before that. Names as in _profile/threads.py.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from torch_xla_cc._runtime.private import XLAC

_RANK, _MEETS = "torch_xla_cc rank ", "torch_xla_cc meets "


def meets(rank: int) -> contextlib.AbstractContextManager[Any]:
    """Around the wait of that rank for the others, and for what they do then."""
    return XLAC.profiler.TraceMe(f"{_MEETS}{rank}")  # type: ignore[no-any-return]


def as_rank(rank: int, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[[], Any]:  # noqa: ANN401 (passed on)
    """Runs it with these, as an event of that rank. That takes half a microsecond."""
    return functools.partial(_run, rank, run, args, kwargs)


def _run(rank: int, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 (what it returns)
    with XLAC.profiler.TraceMe(f"{_RANK}{rank}"):
        return run(*args, **kwargs)
