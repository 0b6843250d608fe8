"""A rank of a pod that mpirun has started: what it does is named by its argument."""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import torch_xla_cc.distributed
import txcc_pod

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "harness")]
import several_ranks

TYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int16", "uint8", "float8_e5m2")


def values(rank, size):
    """All main ops, ours and torch_xla's; small types, which XLA does not give to MPI."""
    for dtype in TYPES:
        if dtype == "float8_e5m2":  # which torch does not sum
            x = torch.full((size,), rank + 1.0).to(torch.float8_e5m2).to("xla")
            assert several_ranks.ours.all_gather(x).float().tolist() == [
                r + 1.0 for r in range(size) for _ in range(size)
            ]
            continue
        made, _ = several_ranks.in_one_graph(rank, dtype)
        for name, wanted in several_ranks.expected(rank, size, dtype).items():
            assert torch.equal(made[name], wanted), (dtype, name, made[name], wanted)


def groups(rank, size):
    """Whose first rank is the same, and which some are not in; in one program, in each order."""
    members = [(0, 1), (0, 1, 2), (0, 2), (1, 2)]
    every = [dist.new_group(list(ranks)) for ranks in members]
    for order in ((0, 1, 2, 3), (3, 1, 2, 0), (1, 0)):
        xs = {i: torch.full((4,), 10.0**rank * (i + 1)).to("xla") for i in order}
        with torch_xla_cc.distributed.in_graph():
            for i in order:
                if rank in members[i]:
                    dist.all_reduce(xs[i], group=every[i])
        for i in order:
            if rank in members[i]:
                assert xs[i].tolist() == [sum(10.0**r for r in members[i]) * (i + 1)] * 4
    if rank < 2:  # alone, while the other does nothing
        alone = torch.full((3,), float(rank + 5)).to("xla")
        dist.all_reduce(alone, op=dist.ReduceOp.MAX, group=every[0])
        assert alone.tolist() == [6.0] * 3


def refused(rank, size):
    """More than XLA counts."""
    x = torch.zeros(2**29 + 1, device="xla") + rank
    dist.all_reduce(x)
    try:
        print(x[:1].cpu())
    except ValueError as error:
        assert "all-reduce of 2147483652 bytes" in str(error), error
        return
    raise AssertionError("it was not refused")


def late(rank, size):
    """One comes after the others have given up."""
    if rank == 1:
        time.sleep(10)


def dies(rank, size):
    """One goes."""
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def main(what):
    txcc_pod.register()
    dist.init_process_group("xla_cc")
    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.ones(3, device="xla")
    dist.all_reduce(x)
    assert x.tolist() == [size] * 3
    globals()[what](rank, size)
    try:
        dist.all_reduce(x)
        x.tolist()
    except RuntimeError as error:
        print(f"told: {' '.join(str(error).split())}", flush=True)
        sys.exit(3)
    print("ended well", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
