"""torch_xla's own all-reduces without a pinned layout, as ours are.

torch_xla pins by default, and XLA takes no program in which some all-reduces are pinned and some
are not: a loss that is averaged with ours, and optimizer_step of torch_xla's. A pin is for ranks
that compile programs of their own; those of a TPU or a GPU compile one.
TORCH_XLA_CC_STOCK_PINS=1 leaves torch_xla's as they are.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from torch_xla_cc._runtime.private import XLAC


def _without_pin(name: str) -> None:
    theirs = getattr(XLAC, name)

    @functools.wraps(theirs)
    def ours(
        reduce_type: str,
        inputs: Any,  # noqa: ANN401 (a tensor, or a list of them)
        scale: float,
        groups: list[list[int]],
        pin_layout: bool,
    ) -> Any:  # noqa: ANN401
        return theirs(reduce_type, inputs, scale, groups, False)

    setattr(XLAC, name, ours)


def unpin() -> None:
    """For the life of the process."""
    if os.environ.get("TORCH_XLA_CC_STOCK_PINS", "0") == "1":
        return
    for name in ("_xla_all_reduce", "_xla_all_reduce_inplace"):
        _without_pin(name)
