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
import pods
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
    backwards = several_ranks.ours.all_gather(xs[0][:1] * 0 + rank, groups=[[2, 0, 1]])
    assert backwards.tolist() == [2.0, 0.0, 1.0]
    of_one = several_ranks.ours.all_reduce("sum", xs[0][:1] * 0 + rank, groups=[[0, 2], [1]])
    assert of_one.tolist() == [1.0 if rank == 1 else 2.0]
    if rank < 2:  # alone, while the other does nothing
        alone = torch.full((3,), float(rank + 5)).to("xla")
        dist.all_reduce(alone, op=dist.ReduceOp.MAX, group=every[0])
        assert alone.tolist() == [6.0] * 3


def numbers(rank, size):
    """NaNs and zeros with a sign: the same on all ranks."""
    for who in range(size):
        x = torch.arange(1.0, 5.0) + rank
        x[who] = float("nan") if rank == who else x[who]
        zero = torch.tensor([-0.0 if rank == who else 0.0])
        for dtype in (torch.float32, torch.float64, torch.float16):
            for kind in ("max", "min"):
                y = torch.cat([x, zero]).to(dtype).to("xla")
                seen = several_ranks.ours.all_gather(several_ranks.ours.all_reduce(kind, y))
                first, *others = seen.cpu().reshape(size, -1)
                for other in others:
                    assert torch.equal(first.view(torch.uint8), other.view(torch.uint8)), seen
                there = [r for r in range(size) if r != who]
                wanted = float(who + 1 + (max(there) if kind == "max" else min(there)))
                assert first[who] == wanted, (who, kind, first)
                assert bool(torch.signbit(first[4])) == (kind == "min"), (kind, first)


def late_in_second(rank, size):
    """A member of a group that is new, and not the first of the program."""
    groups = [dist.new_group([0, 1]), dist.new_group([0, 2])]
    if rank == 2:
        time.sleep(10)
    with torch_xla_cc.distributed.in_graph():
        for other, group in enumerate(groups, 1):
            if rank in (0, other):
                x = torch.ones(2, device="xla")
                dist.all_reduce(x, group=group)


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
    """A device process goes: of its rank mpirun would end the others before they can say so."""
    if rank == 1:
        (process,) = pods.device_processes([os.getpid()]).values()
        os.kill(process, signal.SIGKILL)


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
