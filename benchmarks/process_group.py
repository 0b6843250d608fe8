"""Calls of torch.distributed on one device: host cost against torch_xla's backend.

torch_xla's backend and ours cannot be in one process, since both are the
kernels of c10d on XLA devices: processes of the two alternate, and the figure is the ratio of the
medians. A group of one rank has nobody to meet, and ours then makes no node; so there is a column
of what a call costs that has seven others to meet: it is traced, for a TPU, with its check between
ranks, and not run. "Nothing" is PyTorch's backend "fake", in C++, on CPU tensors: what the way
through torch.distributed costs alone.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BLOCKS = 100
CALLS = 50
TURNS = 5
ELEMENTS = 4096


def _calls(dist: Any, x: Any, size: int, group: Any = None) -> dict[str, Callable[[], Any]]:
    import torch

    whole = torch.zeros(size * ELEMENTS, device=x.device)
    part = torch.zeros(ELEMENTS, device=x.device)
    return {
        "all_reduce": lambda: dist.all_reduce(x, group=group),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(whole, x, group=group),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
    }


def _cost(call: Callable[[], Any]) -> float:
    """us of a call: the median of blocks, each of a graph of its own."""
    import torch_xla

    times = []
    for _ in range(BLOCKS):
        torch_xla.sync(wait=True)
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - start) / CALLS)
    return statistics.median(times) * 1e6


def one_side(side: str) -> dict[str, float]:
    """us a call, of "ours", "ours of eight", "torch_xla" or "nothing"."""
    import torch
    import torch.distributed as dist
    import torch_xla

    os.environ.update(MASTER_ADDR="127.0.0.1", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    if side == "torch_xla":
        import torch_xla.distributed.xla_backend

        dist.init_process_group("xla", init_method="xla://")
    elif side == "nothing":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
        return {name: _cost(call) for name, call in _calls(dist, torch.zeros(ELEMENTS), 1).items()}
    else:
        import torch_xla_cc.distributed

        store = dist.HashStore()
        dist.init_process_group("xla_cc", store=store, rank=0, world_size=1)
    x = torch.zeros(ELEMENTS, device=torch_xla.device())
    if side != "ours of eight":
        return {name: _cost(call) for name, call in _calls(dist, x, 1).items()}

    import torch_xla_cc

    group = _group_of_eight()
    with torch_xla_cc.lowering_for("tpu:v5e:2x4"), torch_xla_cc.distributed.in_graph():
        found = {}
        for name, call in _calls(dist, x, 8, group).items():
            times = []
            for _ in range(BLOCKS):
                start = time.perf_counter()
                for _ in range(CALLS):
                    call()
                times.append((time.perf_counter() - start) / CALLS)
                torch_xla._XLAC._clear_pending_irs("xla:0")  # it is for a TPU
            found[name] = statistics.median(times) * 1e6
    return found


def _group_of_eight() -> Any:
    """Rank 0 of eight, that meets nobody: its calls are traced only."""
    import torch
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    from torch_xla_cc import _C

    group = dist.ProcessGroup(dist.HashStore(), 0, 8)
    members = list(range(8))
    backend = _C.paper_backend(_C.RankGroup("eight", members, members, 8, 0), 60_000)
    group._register_backend(torch.device("xla"), dist.ProcessGroup.BackendType.CUSTOM, backend)
    group._set_group_name("eight")
    c10d._world.pg_group_ranks[group] = {rank: rank for rank in range(8)}
    c10d._world.pg_map[group] = ("xla_cc", dist.HashStore())
    c10d._world.pg_names[group] = "eight"
    return group


def _process(code: str) -> Any:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import process_group as b, json; print('ROWS', json.dumps({code}))",
        ],
        cwd=Path(__file__).parent,
        env=dict(os.environ, PJRT_DEVICE="CPU", MASTER_PORT=str(20_000 + os.getpid() % 20_000)),
        text=True,
        stdout=subprocess.PIPE,
        timeout=600,
        check=True,
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("ROWS"))
    return json.loads(line[4:])


def host_cost() -> list[tuple[str, ...]]:
    """Rows: op, us of ours, of eight ranks, of nothing, of torch_xla; ratios to the last."""
    sides = ("ours", "ours of eight", "nothing", "torch_xla")
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for _ in range(TURNS):
        for side in sides:
            found[side].append(_process(f"b.one_side({side!r})"))
    rows = []
    for op in found["ours"][0]:
        costs = [statistics.median(r[op] for r in found[side]) for side in sides]
        ratios = [cost / costs[-1] for cost in costs[:-1]]
        rows.append((op, *(f"{cost:.1f}" for cost in costs), *(f"{r:.2f}" for r in ratios)))
    return rows


if __name__ == "__main__":
    for row in host_cost():
        print(*row, sep="\t")
