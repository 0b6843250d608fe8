"""Steps with one collective on a pod of four ranks: in shared memory, and by MPI, beside gloo.

    PYTHONPATH=python python benchmarks/pod_collectives.py

mpirun starts the ranks of the second. Microseconds of a step of rank 0, on average, as in pod.py;
and their ratios to gloo's.
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

_CHOICE = "TORCH_XLA_CC_POD_COLLECTIVES"
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
    env = {**os.environ, "PJRT_DEVICE": "POD", _CHOICE: "mpi"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_LIMIT_S)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("[["))
    return {(op, label): figure for op, label, figure in json.loads(line)}


def by(choice):
    """By (op, size)."""
    os.environ[_CHOICE] = choice
    return torch_xla_cc.launch(pod.on_the_pod, nprocs=pod.RANKS, pod=True)[0]


def main():
    memory, mpi, gloo = by("memory"), by_mpi(), by("gloo")
    print(f"{pod.RANKS} ranks, load {os.getloadavg()[0]:.0f}")
    print(f"{'':28}{'memory':>17}{'MPI':>17}{'gloo':>10}")
    for (op, label), other in gloo.items():
        figures = [
            f"{one[op, label]:10.0f} {one[op, label] / other:.2f}  " for one in (memory, mpi)
        ]
        print(f"{op:20}{label:8}{''.join(figures)}{other:10.0f}")


if __name__ == "__main__":
    rank() if "rank" in sys.argv else main()
