"""torch_xla's own all_reduces, reduce_scatters and all_gathers without a pinned layout, as ours.

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

# Where each of them takes whether it is pinned. Of small gathers, and of reduce-scatters, a TPU's
# compiler makes all-reduces, pinned ones of pinned ones.
_PLACES = {
    "_xla_all_gather": 4,
    "_xla_all_gather_out": 6,
    "_xla_all_reduce": 4,
    "_xla_all_reduce_inplace": 4,
    "_xla_reduce_scatter": 7,
    "_xla_reduce_scatter_coalesced": 7,
    "_xla_reduce_scatter_coalesced_out": 8,
    "_xla_reduce_scatter_out": 8,
}


def _without_pin(name: str, place: int) -> None:
    theirs = getattr(XLAC, name)

    @functools.wraps(theirs)
    def ours(*args: Any) -> Any:  # noqa: ANN401 (theirs, which have no names)
        return theirs(*args[:place], False, *args[place + 1 :])

    setattr(XLAC, name, ours)


def unpin() -> None:
    """For the life of the process."""
    if os.environ.get("TORCH_XLA_CC_STOCK_PINS", "0") == "1":
        return
    for name, place in _PLACES.items():
        _without_pin(name, place)
