"""What happens when a collective has to be lowered by its fallback."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from torch_xla_cc import _C
from torch_xla_cc._show import show

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
def fallback(policy: str) -> Iterator[None]:
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
