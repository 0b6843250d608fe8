"""Programs for 8 GPUs where one is: compiled ahead of time; and run with NCCL mocked.

With MOCKED_RANKS=8 XLA takes this process for one of 8, and its collectives return at once: what
they give is not looked at, only that the programs compile, load and run.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(os.environ["TXCC_TESTS"], "tests/python")), str(Path(__file__).parent)]

import torch  # noqa: E402
import torch_xla  # noqa: E402
from torch_xla._internal import pjrt  # noqa: E402

import torch_xla_cc  # noqa: E402
from torch_xla_cc import xla_model as xm  # noqa: E402

_x = torch.randn(16, 128, device="xla")
torch_xla.sync()


def every_op() -> list[torch.Tensor]:
    """Each op once, on 8 ranks."""
    x = _x
    ring = [(rank, (rank + 1) % 8) for rank in range(8)]
    channel = torch_xla_cc.Channel(ring[:-1])
    root = [x + 1]
    xm.collective_broadcast(root)
    xm.send(x, channel)
    return [
        xm.all_gather(x), xm.all_reduce("sum", x), xm.reduce_scatter("sum", x), root[0],
        xm.all_to_all(x, 0, 0), xm.collective_permute(x, ring), xm.recv((16, 128), channel),
        xm.all_gather(x, groups=[[0, 1, 2], [3, 4, 5, 6, 7]]),
        xm.uneven_all_to_all(x[:8], [[1] * 8] * 8, padded=True),
    ]  # fmt: skip


def ahead() -> None:
    """The plugin of this machine compiles for 8 of a description, in a process of its own."""
    for target in ("gpu:h100x8", "gpu:a100x8", "gpu:b200x8"):
        start = time.perf_counter()
        report = torch_xla_cc.inspect(every_op, target=target)
        took = time.perf_counter() - start
        print(target, dict(report.counts), report.failure, report.memory, f"{took:.1f} s")


def mocked() -> None:
    """Each batch of calls of worker.py for 8 ranks, f32."""
    import cases as made
    from oracle import meaning

    pjrt.initialize_multiprocess(0, 1)
    print("world", torch_xla.runtime.world_size(), "rank", torch_xla.runtime.global_ordinal())
    for name, batch in made.batches(8):
        if not name.endswith(" f32"):
            break
        start = time.perf_counter()
        try:
            issued = [made.run(0, case, meaning(case)) for case in batch]
            made.results([tensor for tensor, _ in issued])
            how = "ran"
        except Exception as error:
            how = f"{type(error).__name__}: {error}"[:300]
        took = f"{time.perf_counter() - start:.2f} s"
        print(f"mocked, 8 ranks: {name}: {len(batch)} calls: {how}, {took}", flush=True)


if __name__ == "__main__":
    print("device", torch_xla.runtime.device_type(), torch_xla._XLAC._xla_device_kind("xla:0"))
    print(torch_xla.runtime.global_runtime_device_attributes())
    mocked() if os.environ.get("MOCKED_RANKS") else ahead()
