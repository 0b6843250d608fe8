"""Four processes on CPU, in one world of torch.distributed, and the rows that rank 0 brings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROCESSES = 4
Rows = list[tuple[str, ...]]


def run(module: str, function: str) -> Rows:
    """What `module.function(rank)` returns on rank 0."""
    port = 20_000 + os.getpid() % 20_000
    with tempfile.TemporaryDirectory() as folder:
        code = "import four_processes as b; b._rank({!r}, {!r}, {}, {}, {!r})"
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", code.format(module, function, rank, port, folder)],
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
        return [tuple(row) for row in json.loads(Path(folder, "rows.json").read_text())]


def _rank(module: str, function: str, rank: int, port: int, folder: str) -> None:
    import importlib
    from datetime import timedelta

    import torch
    import torch.distributed as dist

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
    rows = getattr(importlib.import_module(module), function)(rank)
    if rank == 0:
        Path(folder, "rows.json").write_text(json.dumps(rows))
    together()


def together() -> None:
    """All ranks have come, by gloo on CPU tensors."""
    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.zeros(1))
