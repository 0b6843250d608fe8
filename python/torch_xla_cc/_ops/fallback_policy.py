"""What happens when a collective has to be lowered by its fallback."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from torch_xla_cc import _C
from torch_xla_cc._ops.types import Policy
from torch_xla_cc._runtime.show import show

F = TypeVar("F", bound=Callable[..., Any])

VARIABLE = "TORCH_XLA_CC_FALLBACK"
POLICIES = ("allow", "warn", "error")


class FallbackWarning(UserWarning):
    """A collective is lowered by its fallback, and costs more than the instruction would."""


def check(where: str, policy: object) -> str:
    """The policy, if it is one."""
    if not isinstance(policy, str) or policy not in POLICIES:
        raise ValueError(
            f"{where} = {show(policy)}, but it must be one of {', '.join(map(repr, POLICIES))}"
        )
    return policy


def from_environment() -> str:
    """The policy of the process: TORCH_XLA_CC_FALLBACK, or "warn"."""
    return check(VARIABLE, os.environ.get(VARIABLE, "warn"))


@contextlib.contextmanager
def fallback(policy: Policy) -> Iterator[None]:
    """Allow, warn about, or forbid fallbacks inside the block.

    Args:
      policy: "allow"; "warn": a FallbackWarning, once for each op, device and reason; "error":
        FallbackForbidden. Only fallbacks count that move or hold more bytes than the native
        instruction would.

    Holds for the calling thread, and for the ranks that it launches.
    """
    wanted = check("fallback: policy", policy)
    before = _C.thread_fallback()
    _C.set_thread_fallback(wanted)
    try:
        yield
    finally:
        _C.set_thread_fallback(before)


def policy_per_call(function: F) -> F:
    """Give the keyword `fallback`, which the function declares, its meaning."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (as the function)
        policy = kwargs.pop("fallback", None)
        if policy is None:
            return function(*args, **kwargs)
        with fallback(policy):
            return function(*args, **kwargs)

    return cast("F", call)
