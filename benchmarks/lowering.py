"""Lowering: time against the number of different collectives, bytes against the world size."""

from __future__ import annotations

import os
import time

COUNTS = (250, 500, 1000, 2000)
WORLDS = (8, 64, 512, 4096)


def time_per_collective() -> list[tuple[str, ...]]:
    """Rows: different collectives, us each traced and lowered, ratio to the first row."""
    import torch
    import torch_xla

    from torch_xla_cc import _C
    from torch_xla_cc import xla_model as xm

    device = torch_xla.device()
    rows = []
    first = None
    size = 1
    for count in COUNTS:
        inputs = [torch.ones(size + i, device=device) for i in range(count)]
        size += count
        torch_xla.sync(wait=True)
        misses = _C.cache_counts()["misses"]
        start = time.perf_counter()
        outputs = [xm.all_gather(x) for x in inputs]
        us = (time.perf_counter() - start) / count * 1e6
        assert _C.cache_counts()["misses"] - misses == count, "they were not all different"
        first = first or us
        rows.append((str(count), f"{us:.1f}", f"{us / first:.2f}"))
        del outputs, inputs
    return rows


def bytes_per_world() -> list[tuple[str, ...]]:
    """Rows: op and groups, bytes of the module for each world size."""
    import torch_xla_cc
    from torch_xla_cc import _C

    rows = []
    shape = [(11, [8192, 128])]
    for name, call in {
        "all_gather": lambda groups: _C.lower_all_gather(shape, 0, groups),
        "all_reduce": lambda groups: _C.lower_all_reduce(shape, "sum", 1.0, 1.0, groups),
        "reduce_scatter": lambda groups: _C.lower_reduce_scatter(
            shape, "sum", 1.0, 1.0, 0, None, groups
        ),
        "all_to_all": lambda groups: _C.lower_all_to_all(shape, 0, 0, None, groups),
    }.items():
        for form in ("world", "blocks of 4", "every 4th"):
            sizes = []
            for world in WORLDS:
                groups = {
                    "world": None,
                    "blocks of 4": [list(range(i, i + 4)) for i in range(0, world, 4)],
                    "every 4th": [list(range(i, world, world // 4)) for i in range(world // 4)],
                }[form]
                with torch_xla_cc.lowering_for("tpu", world):
                    sizes.append(str(len(call(groups)["bytes"])))
            rows.append((name, form, *sizes))
    return rows


def run() -> dict[str, tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Both tables, by title."""
    os.environ["PJRT_DEVICE"] = "CPU"
    return {
        "Different collectives traced and lowered, one device": (
            ("collectives", "us each", "ratio"),
            time_per_collective(),
        ),
        "Bytes of a module": (
            ("op", "groups", *(f"{world} ranks" for world in WORLDS)),
            bytes_per_world(),
        ),
    }


if __name__ == "__main__":
    for title, (columns, rows) in run().items():
        print(title)
        for line in (columns, *rows):
            print("  ".join(f"{cell:>14}" for cell in line))
