"""Calls of torch.distributed: host cost against torch_xla's backend, and processes against gloo.

`host_cost`: one device. torch_xla's backend and ours cannot be in one process, since both are the
kernels of c10d on XLA devices: processes of the two alternate, and the figure is the ratio of the
medians. A group of one rank has nobody to meet, and ours then makes no node; so there is a column
of what a call costs that has seven others to meet: it is traced, for a TPU, with its check between
ranks, and not run.

`against_gloo`: four processes, whose XLA devices are CPUs, against the same call on CPU tensors.
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
PROCESSES = 4


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
    """us a call, of "ours", "ours of eight" or "torch_xla"."""
    import torch
    import torch.distributed as dist
    import torch_xla

    os.environ.update(MASTER_ADDR="127.0.0.1", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    if side == "torch_xla":
        import torch_xla.distributed.xla_backend

        dist.init_process_group("xla", init_method="xla://")
    else:
        import torch_xla_cc.distributed

        store = dist.HashStore()
        dist.init_process_group("xla_cc", store=store, rank=0, world_size=1)
    x = torch.zeros(ELEMENTS, device=torch_xla.device())
    if side != "ours of eight":
        return {name: _cost(call) for name, call in _calls(dist, x, 1).items()}

    import torch_xla_cc
    from torch_xla_cc import _C

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
        _C.board_clear()
    return found


def _group_of_eight() -> Any:
    """Rank 0 of eight, that meets nobody: its calls are traced only."""
    import torch
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    from torch_xla_cc import _C

    group = dist.ProcessGroup(dist.HashStore(), 0, 8)
    backend = _C.thread_backend(_C.Group("eight", list(range(8)), 8, 0), 60_000)
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
    """Rows: op, us ours, us ours of eight ranks, us torch_xla, ratio of each of ours to it."""
    sides = ("ours", "ours of eight", "torch_xla")
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for _ in range(TURNS):
        for side in sides:
            found[side].append(_process(f"b.one_side({side!r})"))
    rows = []
    for op in found["ours"][0]:
        ours, eight, stock = (statistics.median(r[op] for r in found[side]) for side in sides)
        costs = [f"{ours:.1f}", f"{eight:.1f}", f"{stock:.1f}"]
        rows.append((op, *costs, f"{ours / stock:.2f}", f"{eight / stock:.2f}"))
    return rows


def _against_gloo(rank: int, port: int, folder: str) -> None:
    """A process of four: blocks on XLA tensors and on CPU tensors take turns."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    import torch_xla

    import torch_xla_cc.distributed  # noqa: F401

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, PROCESSES, rank == 0)
    dist.init_process_group(
        "cpu:gloo,xla:xla_cc",
        store=store,
        rank=rank,
        world_size=PROCESSES,
        timeout=timedelta(seconds=300),
    )
    rows = []
    for mib, blocks in ((1, 40), (64, 7)):
        elements = (mib << 20) // 4
        for op in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast"):
            times: dict[str, list[float]] = {"cpu": [], "xla": []}
            tensors = {}
            for device in ("cpu", torch_xla.device()):
                x = torch.ones(elements, device=device)
                tensors[str(device)[:3]] = (x, torch.zeros(elements * PROCESSES, device=device))
            torch_xla.sync(wait=True)
            for _ in range(blocks):
                for side, (x, whole) in tensors.items():
                    dist.all_reduce(torch.zeros(1))  # together
                    start = time.perf_counter()
                    if op == "all_reduce":
                        dist.all_reduce(x)
                    elif op == "broadcast":
                        dist.broadcast(x, 0)
                    elif op == "all_gather_into_tensor":
                        dist.all_gather_into_tensor(whole, x)
                    else:
                        dist.reduce_scatter_tensor(x, whole)
                    torch_xla.sync(wait=True)
                    times[side].append(time.perf_counter() - start)
            ours, gloo = (statistics.median(times[side][2:]) * 1e3 for side in ("xla", "cpu"))
            rows.append((op, f"{mib} MiB", f"{ours:.2f}", f"{gloo:.2f}", f"{ours / gloo:.2f}"))
    if rank == 0:
        Path(folder, "rows.json").write_text(json.dumps(rows))
    dist.all_reduce(torch.zeros(1))


def against_gloo() -> list[tuple[str, ...]]:
    """Rows: op, size a rank, ms ours, ms gloo, ratio."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        port = 20_000 + os.getpid() % 20_000
        ranks = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    f"import process_group as b; b._against_gloo({rank}, {port}, {folder!r})",
                ],
                cwd=Path(__file__).parent,
                env=dict(os.environ, PJRT_DEVICE="CPU", OMP_NUM_THREADS="1"),
                stdout=subprocess.DEVNULL,
            )
            for rank in range(PROCESSES)
        ]
        try:
            for process in ranks:
                process.wait(timeout=900)
        finally:
            for process in ranks:
                process.kill()
        rows: list[tuple[str, ...]] = [
            tuple(row) for row in json.loads(Path(folder, "rows.json").read_text())
        ]
        return rows


if __name__ == "__main__":
    for table in (host_cost, against_gloo):
        for row in table():
            print(*row, sep="\t")
