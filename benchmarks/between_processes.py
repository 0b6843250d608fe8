"""Calls of torch.distributed between four processes, whose XLA devices are CPUs.

`against_gloo`: against the same call on CPU tensors. `check_cost`: what it costs to compare calls
between the ranks, by what TORCH_XLA_CC_CHECK says. What is compared takes turns in one run.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import four_processes
from four_processes import PROCESSES, Rows, together

CHECKS = ("off", "fingerprint", "full")
CALLS = 10  # in a block of check_cost


def _groups() -> dict[str, Any]:
    """One for each value of TORCH_XLA_CC_CHECK, which a group reads when it is made."""
    import torch.distributed as dist

    before = os.environ.get("TORCH_XLA_CC_CHECK")
    groups = {}
    for check in CHECKS:
        os.environ["TORCH_XLA_CC_CHECK"] = check
        groups[check] = dist.new_group()
    if before is None:
        del os.environ["TORCH_XLA_CC_CHECK"]
    else:
        os.environ["TORCH_XLA_CC_CHECK"] = before
    return groups


def _gloo(rank: int) -> Rows:
    """Blocks on XLA tensors, compared and not, and on CPU tensors take turns."""
    import torch
    import torch.distributed as dist
    import torch_xla

    groups = _groups()
    sides = {
        "ours": (torch_xla.device(), groups["fingerprint"]),
        "not compared": (torch_xla.device(), groups["off"]),
        "gloo": (torch.device("cpu"), groups["off"]),
    }
    rows = []
    for mib, blocks in ((1, 150), (64, 9)):
        elements = (mib << 20) // 4
        for op in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast"):
            times: dict[str, list[float]] = {side: [] for side in sides}
            tensors = {
                device: (
                    torch.ones(elements, device=device),
                    torch.zeros(elements * PROCESSES, device=device),
                )
                for device, _ in sides.values()
            }
            torch_xla.sync(wait=True)
            for _ in range(blocks):
                for side, (device, group) in sides.items():
                    x, whole = tensors[device]
                    together()
                    start = time.perf_counter()
                    if op == "all_reduce":
                        dist.all_reduce(x, group=group)
                    elif op == "broadcast":
                        dist.broadcast(x, 0, group=group)
                    elif op == "all_gather_into_tensor":
                        dist.all_gather_into_tensor(whole, x, group=group)
                    else:
                        dist.reduce_scatter_tensor(x, whole, group=group)
                    torch_xla.sync(wait=True)
                    times[side].append(time.perf_counter() - start)
            costs = [statistics.median(times[side][2:]) * 1e3 for side in sides]
            ratios = [cost / costs[-1] for cost in costs[:-1]]
            rows.append((op, f"{mib} MiB", *(f"{n:.2f}" for n in (*costs, *ratios))))
    return rows


def _checks(rank: int) -> Rows:
    import torch
    import torch.distributed as dist
    import torch_xla

    groups = _groups()
    rows = []
    for kib, blocks in ((4, 60), (1024, 40)):
        x = torch.zeros(kib * 256, device=torch_xla.device())
        torch_xla.sync(wait=True)
        times: dict[str, list[float]] = {check: [] for check in CHECKS}
        for _ in range(blocks):
            for check, group in groups.items():
                together()
                start = time.perf_counter()
                for _ in range(CALLS):
                    dist.all_reduce(x, group=group)
                torch_xla.sync(wait=True)
                times[check].append((time.perf_counter() - start) / CALLS)
        costs = {check: statistics.median(times[check][2:]) * 1e3 for check in CHECKS}
        size = f"{kib} KiB" if kib < 1024 else f"{kib // 1024} MiB"
        for check, cost in costs.items():
            rows.append((size, check, f"{cost:.3f}", f"{cost / costs['off']:.2f}"))
    return rows


def against_gloo() -> Rows:
    """Rows: op, size a rank, ms of ours, of ours not compared, of gloo; ratios of those to gloo."""
    return four_processes.run("between_processes", "_gloo")


def check_cost() -> Rows:
    """Rows: size a rank, TORCH_XLA_CC_CHECK, ms a call, ratio to off."""
    return four_processes.run("between_processes", "_checks")


if __name__ == "__main__":
    for table in (against_gloo, check_cost):
        for row in table():
            print(*row, sep="\t")
