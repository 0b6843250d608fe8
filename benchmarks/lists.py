"""Lists that are chunks of one buffer, against lists of tensors of their own, and the plain form.

all_gather into a list, reduce_scatter from a list. Chunks of a buffer are that buffer: the call is
the one into, or from, a tensor. What does not lie in one buffer is copied.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable

import four_processes
from four_processes import Rows

SIZES = ((64, 40), (1024, 20), (16 * 1024, 6))  # KiB a rank, blocks
COLUMNS = 128
FORMS = ("tensor", "chunks", "apart")


def _calls(op: str, size: int, rows: int) -> dict[str, Callable[[], None]]:
    """Each form of the op, on tensors of its own."""
    import torch
    import torch.distributed as dist
    import torch_xla

    from torch_xla_cc.distributed import one_buffer

    device = torch_xla.device()
    x = torch.ones(rows, COLUMNS, device=device)
    whole = torch.zeros(size * rows, COLUMNS, device=device)
    buffer = torch.zeros(size * rows, COLUMNS, device=device)
    chunks = list(buffer.chunk(size))
    apart = [torch.zeros(rows, COLUMNS, device=device) for _ in range(size)]

    def of_chunks(call: Callable[..., None], *arguments: object) -> None:
        with one_buffer():  # an error if they are not taken for the buffer
            call(*arguments)

    if op == "all_gather":
        return {
            "tensor": lambda: dist.all_gather_into_tensor(whole, x),
            "chunks": lambda: of_chunks(dist.all_gather, chunks, x),
            "apart": lambda: dist.all_gather(apart, x),
        }
    return {
        "tensor": lambda: dist.reduce_scatter_tensor(x, whole),
        "chunks": lambda: of_chunks(dist.reduce_scatter, x, chunks),
        "apart": lambda: dist.reduce_scatter(x, apart),
    }


def _measure(size: int, together: Callable[[], object]) -> Rows:
    """On each rank; forms take turns."""
    import torch_xla

    table = []
    for op in ("all_gather", "reduce_scatter"):
        for kib, blocks in SIZES:
            calls = _calls(op, size, kib * 256 // COLUMNS)
            torch_xla.sync(wait=True)
            times: dict[str, list[float]] = {form: [] for form in FORMS}
            for _ in range(blocks):
                for form in FORMS:
                    together()
                    start = time.perf_counter()
                    calls[form]()
                    torch_xla.sync(wait=True)
                    times[form].append(time.perf_counter() - start)
            ms = [statistics.median(times[form][2:]) * 1e3 for form in FORMS]
            a_rank = f"{kib} KiB" if kib < 1024 else f"{kib // 1024} MiB"
            ratios = (f"{ms[1] / ms[0]:.2f}", f"{ms[2] / ms[1]:.2f}")
            table.append((op, str(size), a_rank, *(f"{figure:.2f}" for figure in ms), *ratios))
    return table


def on_threads(size: int) -> Rows:
    """Rows: op, ranks, size a rank, ms of each form, chunks to tensor, apart to chunks."""
    import torch.distributed as dist

    import torch_xla_cc
    import torch_xla_cc.distributed

    barrier = threading.Barrier(size)

    def main(rank: int) -> Rows:
        dist.init_process_group("xla_cc")
        return _measure(size, barrier.wait)

    return torch_xla_cc.launch(main, nprocs=size)[0]


def _process(rank: int) -> Rows:
    return _measure(four_processes.PROCESSES, four_processes.together)


def on_processes() -> Rows:
    """The same rows."""
    return four_processes.run("lists", "_process")


if __name__ == "__main__":
    import sys

    for row in on_threads(int(sys.argv[1])) if sys.argv[1:] else on_processes():
        print(*row, sep="\t")
