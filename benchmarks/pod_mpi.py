"""Steps with one collective on a pod of four ranks: by MPI beside gloo.

    PYTHONPATH=python python benchmarks/pod_mpi.py

mpirun starts the ranks of the first. Microseconds of a step of rank 0, on average, as in pod.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pod
import pod_steps
import torch.distributed as dist

import torch_xla_cc
import torch_xla_cc.distributed
import txcc_pod

_CHOICE = {"PJRT_DEVICE": "POD", "TORCH_XLA_CC_POD_COLLECTIVES": "mpi"}
_LIMIT_S = 500


def rank():
    """One of mpirun's."""
    txcc_pod.register()
    dist.init_process_group("xla_cc")
    found = pod.on_the_pod(dist.get_rank())
    if dist.get_rank() == 0:
        print(json.dumps([[*case, figure] for case, figure in found.items()]))


def by_mpi():
    """By (op, size)."""
    command = [*pod_steps.by_mpirun(pod.RANKS), sys.executable, __file__, "rank"]
    done = subprocess.run(
        command, env={**os.environ, **_CHOICE}, capture_output=True, text=True, timeout=_LIMIT_S
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("[["))
    return {(op, label): figure for op, label, figure in json.loads(line)}


def main():
    mpi = by_mpi()
    gloo = torch_xla_cc.launch(pod.on_the_pod, nprocs=pod.RANKS, pod=True)[0]
    print(f"{pod.RANKS} ranks, load {os.getloadavg()[0]:.0f}")
    print(f"{'':28}{'MPI':>10}{'gloo':>10}{'ratio':>8}")
    for (op, label), figure in mpi.items():
        other = gloo[op, label]
        print(f"{op:20}{label:8}{figure:10.0f}{other:10.0f}{figure / other:8.2f}")


if __name__ == "__main__":
    rank() if "rank" in sys.argv else main()
