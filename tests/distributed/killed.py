"""A rank of four, of which rank 2 kills itself before, during or after its part of a call, or ends.

Prints what the others raise: the type, the seconds, the message.
"""

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch_xla

import torch_xla_cc.distributed  # noqa: F401 (registers xla_cc)

rank, size, port, when = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
store = dist.TCPStore("127.0.0.1", port, None, is_master=False)
dist.init_process_group(
    "cpu:gloo,xla:xla_cc", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=60)
)
x = torch.ones(1 << 22 if when == "during" else 4, device=torch_xla.device())
dist.all_reduce(x)
began = time.monotonic()
try:
    if rank == 2 and when in ("before", "receive"):
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 2 and when == "during":
        # While gloo moves it: 64 MiB take more than this.
        work = dist.all_reduce(torch.ones(1 << 24, device=torch_xla.device()), async_op=True)
        time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 2 and when == "after":
        dist.all_reduce(x)
        os.kill(os.getpid(), signal.SIGKILL)
    if when == "during":
        x = torch.ones(1 << 24, device=torch_xla.device())
    if when == "anyone":  # one ends when it has sent, and another sends later
        if rank == 0:
            print(f"received from {sorted(dist.recv(x) for _ in range(2))}", flush=True)
        elif rank != 3:
            time.sleep(3 if rank == 1 else 0)
            dist.send(x, 0)
        os._exit(0)
    if when == "receive":  # of one that is long gone: gloo has no connection to lose any more
        time.sleep(2)
        dist.recv(x, 2)
    for _ in range(50):
        dist.all_reduce(x)
except Exception as error:
    took = time.monotonic() - began
    print(f"{type(error).__name__}|{took}|{str(error).replace(chr(10), ' ')}", flush=True)
os._exit(0)
