"""What tests do on ranks of the pod while they are traced."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import pods
import torch
import torch_xla.debug.profiler as profiler
from torch_xla import runtime
from torch_xla.core import xla_model as stock

from torch_xla_cc import xla_model as ours
from torch_xla_cc._threads import progress


def is_traced(rank, folder):
    """Four steps, the last two in a trace of each rank; the last rank is late for them."""
    size = runtime.world_size()
    weight = torch.ones(16 * size, 64).to("xla")
    for turn in range(4):
        if turn == 2:
            stock.rendezvous("traced")
            profiler.start_trace(f"{folder}/rank{rank}")
            stock.rendezvous("all are")
        if turn > 1 and rank == size - 1:
            time.sleep(0.1)
        weight = ours.all_gather(weight[:16], dim=0) / 2
        weight = weight + ours.all_reduce(ours.REDUCE_SUM, weight)
        weight.cpu()
    profiler.stop_trace()


# stop_trace() holds Python's lock; who traces from outside asks a thread without it.
_FROM_OUTSIDE = """
import sys
import torch_xla.debug.profiler as profiler
print("asks", flush=True)
profiler.trace(f"localhost:{sys.argv[1]}", sys.argv[2], duration_ms=100)
"""


def speaks_while_a_trace_waits(rank, folder):
    """Whether the rank waited with what it said to its device, and whether the trace still did."""
    torch.ones(3).to("xla").cpu()
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    server = profiler.start_server(port)
    (device,) = pods.device_processes([os.getpid()]).values()
    os.kill(device, signal.SIGSTOP)  # it does not answer
    command = [sys.executable, "-c", _FROM_OUTSIDE, str(port), folder]
    asking = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        while asking.stdout.readline() != "asks\n":
            assert asking.poll() is None
        time.sleep(2)  # until the request is here
        speaking = threading.Thread(target=progress.limit, args=([0], 60_000))
        speaking.start()
        speaking.join(10.0)
        found = speaking.is_alive(), asking.poll() is None
    finally:
        os.kill(device, signal.SIGCONT)
    speaking.join(60.0)
    while asking.poll() is None:  # it asks again and again until something has run
        torch.ones(3).to("xla").cpu()
    del server
    return found


def is_traced_without_a_device(rank, folder):
    """What this process then writes to its standard error."""
    torch.ones(3).to("xla").cpu()
    (device,) = pods.device_processes([os.getpid()]).values()
    os.kill(device, signal.SIGKILL)
    own = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            profiler.start_trace(folder)
            profiler.stop_trace()
        finally:
            os.dup2(own, 2)
            os.close(own)
        file.seek(0)
        return file.read().decode()
