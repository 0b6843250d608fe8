"""Steps with one collective: a pod of four ranks beside the same programs on jaxlib alone.

    PYTHONPATH=python python benchmarks/pod.py

Both run modules that our lowerings emit, on the same jaxlib with the same gloo, in four processes;
the second has neither torch_xla nor a plugin, and native instructions alone (the pod makes an
all_to_all and a sum of a reduce_scatter). Microseconds of a step of rank 0, on average: on the pod
until the last can be read, on jaxlib each is waited for; their ratio; and an empty step beside
torch_xla's CPU client. (Where there are fewer processors than ranks, a small step of gloo takes a
fifth of a millisecond or several: medians say little.) Send buffers are widened on both sides: see
pod_device/buffers.py. Machines differ, and are busy: what is to be compared is of one run.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time

import torch
import torch_xla

import torch_xla_cc
from torch_xla_cc import xla_model as xm
from torch_xla_cc.capabilities import _emit, _grid, _pod

RANKS = 4
ROWS = {"4 KiB": 8, "1 MiB": 2048, "16 MiB": 32768}  # of 128 f32
STEPS = {"4 KiB": 300, "1 MiB": 100, "16 MiB": 30}
WARM = 5
F32 = 11  # PJRT_Buffer_Type
RING = [(i, (i + 1) % RANKS) for i in range(RANKS)]
CALLS = {
    "all_gather": lambda x: xm.all_gather(x),
    "all_reduce": lambda x: xm.all_reduce(xm.REDUCE_SUM, x),
    "reduce_scatter": lambda x: xm.reduce_scatter(xm.REDUCE_SUM, x, 1.0, 0, RANKS),
    "all_to_all": lambda x: xm.all_to_all(x, 0, 0, RANKS),
    "collective_permute": lambda x: xm.collective_permute(x, pairs=RING),
}


def _timed(step, steps):
    """A step on average, until the last has run: sync(wait=True) waits for no device."""
    kept = None  # what nobody holds is not run
    for count in (WARM, steps):
        began = time.perf_counter()
        for _ in range(count):
            kept = step(kept)
            torch_xla.sync()
        kept.reshape(-1)[-1].item()
    return (time.perf_counter() - began) / steps * 1e6


def on_the_pod(rank):
    """By (op, size)."""
    found = {}
    for label, rows in ROWS.items():
        x = torch.ones(rows, 128).to("xla")
        for op, call in CALLS.items():
            found[op, label] = _timed(lambda _, call=call, x=x: call(x), STEPS[label])
    return found


def empty(rank=0):
    """A step of four numbers, on one rank."""
    x = torch.ones(4).to("xla")
    torch_xla.sync(wait=True)
    return _timed(lambda y: (x if y is None else y) + 1, 300)


def on_jaxlib():
    """The same by (op, size)."""
    found = {}
    device = _grid.Device("pod", RANKS, "pod")
    with contextlib.closing(_pod.Ranks(RANKS)) as ranks:
        for label, rows in ROWS.items():
            content = torch.ones(rows, 128).numpy().tobytes()
            arguments = [[(F32, (rows, 128), content), _pod.TOKEN]] * RANKS
            for op in CALLS:
                form = "ring" if op == "collective_permute" else "world"
                kind = "sum" if "reduce" in op else "-"
                cell = _grid.Cell(op, "f32", kind, form, "one")
                code = bytes(_emit.lower(cell, device, "native", [[rows, 128]])["bytes"])
                answers = ranks.run(code, arguments, WARM + STEPS[label])
                if isinstance(answers, list):
                    found[op, label] = statistics.mean(answers[0].made[3][WARM:]) * 1e6
                else:
                    print(f"{op} of {label} on jaxlib alone: {answers.result} {answers.says}")
    return found


def main():
    os.environ["TORCH_XLA_CC_POD_COLLECTIVES"] = "gloo"
    began = time.perf_counter()
    pod = torch_xla_cc.launch(on_the_pod, nprocs=RANKS, pod=True)[0]
    took = time.perf_counter() - began
    jaxlib = on_jaxlib()
    print(f"{RANKS} ranks, load {os.getloadavg()[0]:.0f}; the pod's part took {took:.0f} s")
    print(f"{'':28}{'pod':>10}{'jaxlib':>10}{'ratio':>8}")
    for (op, label), alone in jaxlib.items():
        mine = pod[op, label]
        print(f"{op:20}{label:8}{mine:10.0f}{alone:10.0f}{mine / alone:8.2f}")
    os.environ["PJRT_DEVICE"] = "CPU"
    (of_pod,) = torch_xla_cc.launch(empty, nprocs=1, pod=True)
    print(f"an empty step: pod {of_pod:.0f}, torch_xla's CPU client {empty():.0f}")


if __name__ == "__main__":
    main()
