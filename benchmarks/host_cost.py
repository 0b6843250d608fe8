"""Host cost of a call on one device: our xla_model.<op> against torch_xla's, in the same run.

The whole call counts: wrapper, verification, bookkeeping, the graph node. Blocks of calls
alternate between the two; the figure is the ratio of the medians. The graph is stepped after every
block: long pending graphs make every call look slow.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

BLOCKS = 300
CALLS = 50


def _block(call: Callable[[], Any]) -> float:
    import torch_xla

    torch_xla.sync(wait=True)
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS


def run() -> list[tuple[str, ...]]:
    """Rows: op, us ours, us torch_xla, ratio."""
    os.environ["PJRT_DEVICE"] = "CPU"
    import torch
    import torch_xla
    from torch_xla.core import xla_model as stock

    import torch_xla_cc
    from torch_xla_cc import _C
    from torch_xla_cc import xla_model as ours

    x = torch.randn(64, 64, device=torch_xla.device())
    with torch_xla_cc.lowering_for("cpu", 1):
        module = _C.lower_all_gather([(11, [64, 64])], 0, None)["bytes"]
    computation = torch_xla._XLAC._xla_op_computation_from_module_proto("bare", module)

    def bare() -> Any:
        return torch_xla._XLAC._xla_user_computation("xla_cc::all_gather", [x], computation)

    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "all_gather": (lambda: ours.all_gather(x), lambda: stock.all_gather(x)),
        "reduce_scatter": (
            lambda: ours.reduce_scatter("sum", x, 1.0, 0, 1),
            lambda: stock.reduce_scatter("sum", x, 1.0, 0, 1),
        ),
        "all_to_all": (lambda: ours.all_to_all(x, 0, 0, 1), lambda: stock.all_to_all(x, 0, 0, 1)),
        "collective_permute": (
            lambda: ours.collective_permute(x, [[0, 0]]),
            lambda: stock.collective_permute(x, [[0, 0]]),
        ),
        "all_reduce": (lambda: ours.all_reduce("sum", x), lambda: stock.all_reduce("sum", x)),
        "(bare user computation)": (bare, bare),
    }
    rows = []
    for name, (mine, theirs) in pairs.items():
        _block(mine), _block(theirs)  # compile
        times = [(_block(mine), _block(theirs)) for _ in range(BLOCKS)]
        us = [statistics.median(side) * 1e6 for side in zip(*times, strict=True)]
        rows.append((name, f"{us[0]:.2f}", f"{us[1]:.2f}", f"{us[0] / us[1]:.2f}"))
    return rows


COLUMNS = ("op", "us, ours", "us, torch_xla", "ratio")

if __name__ == "__main__":
    for line in (COLUMNS, *run()):
        print("  ".join(f"{cell:>24}" for cell in line))
