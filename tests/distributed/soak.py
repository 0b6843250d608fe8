"""Many mixed calls: python tests/distributed/soak.py threads|processes|pod [calls]

Four ranks make the same random calls, and check each result. Prints the memory of the process(es),
and of the device processes of a pod, on the way: it must stay flat. tests/distributed/test_soak.py
runs a short one.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pods
import torch
import torch.distributed as dist
import torch_xla

import torch_xla_cc.distributed  # noqa: F401 (registers xla_cc)

RANKS = 4


def resident_mib() -> tuple[int, ...]:
    """Of this process, and of its device process if it has one."""
    own = os.getpid()
    sizes = []
    for pid in (own, *pods.device_processes([own]).values()):
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        sizes.append(int(fields[1]) * 4096 >> 20)
    return tuple(sizes)


def _all_reduce(rank, device, n):
    x = torch.full((n,), float(rank + 1), device=device)
    dist.all_reduce(x)
    return x, torch.full((n,), 10.0)


def _broadcast(rank, device, n):
    x = torch.full((n,), float(rank), device=device)
    dist.broadcast(x, n % RANKS)
    return x, torch.full((n,), float(n % RANKS))


def _all_gather(rank, device, n):
    outputs = [torch.zeros(n, device=device) for _ in range(RANKS)]
    dist.all_gather(outputs, torch.full((n,), float(rank), device=device))
    return torch.cat(outputs), torch.arange(4.0).repeat_interleave(n)


def _reduce_scatter(rank, device, n):
    x = torch.arange(4.0, device=device).repeat_interleave(n)
    y = torch.zeros(n, device=device)
    dist.reduce_scatter_tensor(y, x)
    return y, torch.full((n,), 4.0 * rank)


def _all_to_all(rank, device, n):
    x = torch.full((RANKS * n,), float(rank), device=device)
    y = torch.zeros_like(x)
    dist.all_to_all_single(y, x)
    return y, torch.arange(4.0).repeat_interleave(n)


def _ring(rank, device, n):
    x = torch.full((n,), float(rank), device=device)
    y = torch.zeros_like(x)
    send = dist.isend(x, (rank + 1) % RANKS)
    dist.recv(y, (rank - 1) % RANKS)
    send.wait()
    return y, torch.full((n,), float((rank - 1) % RANKS))


def _barrier(rank, device, n):
    dist.barrier()
    return torch.zeros(1), torch.zeros(1)


CALLS = [_all_reduce, _broadcast, _all_gather, _reduce_scatter, _all_to_all, _ring, _barrier]


def soak(rank: int, calls: int, seed: int = 0) -> list[tuple[int, ...]]:
    """The memory at each tenth of the calls."""
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    rng = random.Random(seed)
    device = torch_xla.device()
    memory = []
    for number in range(calls):
        call = rng.choice(CALLS)
        got, wanted = call(rank, device, rng.randint(1, 40))
        assert torch.equal(got.cpu(), wanted), (number, call.__name__)
        if number % max(1, calls // 10) == 0:
            memory.append(resident_mib())
    memory.append(resident_mib())
    return memory


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent / "python"))
    import processes
    import soak as this
    import worlds

    run = {"threads": worlds.run, "processes": processes.run, "pod": pods.run}[sys.argv[1]]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
    for one in run(RANKS, this.soak, count, timeout_s=3600):
        print(one)
    worlds.close_all()
    processes.close_all()
    pods.close_all()
