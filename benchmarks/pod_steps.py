"""Whole steps on a pod, transfers, and its start.

    PYTHONPATH=python python benchmarks/pod_steps.py [--before=TREE] [--way=NAME ...] [example ...]

Steps of the demo's transformer and of examples/clients, on four ranks: by torchrun on the pod, with
a run at each call and with calls that stay in the graph; the latter by gloo, and by mpirun, where
device processes speak MPI, in the place of memory that they share; as one rank alone on a CPU
device, without calls, times the ranks of each processor, which is what the processors have to do
at least ("nan" where the example needs other ranks); and on CPU devices between which the host
carries each call (docs/distributed.md). With --before, another column is that
of an older commit, which was cloned to TREE and built there. A step is from one loss that a rank
prints to the next: medians after the first ten.
Then 64 MiB to the device and back beside memcpy, and the time from torchrun's start to the first
sum, beside gloo's. Machines differ, and are busy: what is to be compared is of one run.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch

ROOT = Path(__file__).parents[1]
_kept = tempfile.TemporaryDirectory()
SCRIPTS = Path(_kept.name)
RANKS = 4
STEPS, WARM = 40, 10
LIMIT_S = 300  # of what torchrun starts
EXAMPLES = {
    "demo": ["benchmarks/pod_demo.py"],
    "ddp": ["examples/clients/ddp.py"],
    "dtensor_tp": ["examples/clients/dtensor_tp.py"],
    "fsdp2": ["examples/clients/fsdp2.py"],
    "megatron_gpt": ["examples/clients/megatron_gpt.py"],
    "megatron_gpt tp": ["examples/clients/megatron_gpt.py", "--tp=4"],
    "zero_optimizer": ["examples/clients/zero_optimizer.py"],
    "fsdp1": ["examples/clients/fsdp1.py"],
    "accelerate": ["examples/clients/accelerate_gpt2.py"],
    "trainer": ["examples/clients/trainer_gpt2.py"],
    "deepspeed 1": ["examples/clients/deepspeed_zero.py", "--stage=1"],
    "deepspeed 3": ["examples/clients/deepspeed_zero.py", "--stage=3"],
    "pipeline": ["examples/clients/pipeline.py"],
    "megatron pp": ["examples/clients/megatron_gpt.py", "--pp=2"],
    "megatron experts": [
        "examples/clients/megatron_gpt.py",
        *("--experts=4", "--ep=2", "--capacity=1"),
    ],
    "megatron sp": ["examples/clients/megatron_gpt.py", "--tp=4", "--sequence-parallel=1"],
}
FIRST_SUM = """
import sys
import torch
import torch.distributed as dist
if sys.argv[1] == "gloo":
    dist.init_process_group("gloo")
    device = "cpu"
else:
    import torch_xla, txcc_pod, torch_xla_cc.distributed
    txcc_pod.register()
    dist.init_process_group("xla_cc")
    device = "xla"
x = torch.ones(4).to(device)
dist.all_reduce(x)
assert x.cpu()[0] == 4
"""
# A source tree has no entry point by which torch_xla would find the pod.
WITH_THE_POD = """
import runpy, sys
import torch, torch_xla, txcc_pod
import torch_xla_cc.distributed
txcc_pod.register()
del sys.argv[0]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Way(NamedTuple):
    """How an example runs."""

    device: str
    calls: str = "each"  # TORCH_XLA_CC_CALLS
    by: str = "memory"  # TORCH_XLA_CC_POD_COLLECTIVES
    alone: bool = False  # one rank
    tree: Path = ROOT


WAYS = {
    "each call": Way("POD"),
    "in the graph": Way("POD", "graph"),
    "the same, gloo": Way("POD", "graph", "gloo"),
    "the same, MPI": Way("POD", "graph", "mpi"),
    "no calls": Way("CPU", alone=True),
}
HOST = Way("CPU")


def by_mpirun(ranks: int) -> list[str]:
    """What starts them; root has to say that it means it."""
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpirun", *as_root, "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]


def torchrun(way: Way, code: str, *words: str) -> subprocess.Popen[str]:
    ranks = 1 if way.alone else RANKS
    script = SCRIPTS / f"{len(list(SCRIPTS.iterdir()))}.py"
    script.write_text(code)
    of_torch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    start = [*by_mpirun(ranks), sys.executable] if way.by == "mpi" else [sys.executable, *of_torch]
    command = ["timeout", str(LIMIT_S), *start, str(script), *words]
    env = {**os.environ, "PJRT_DEVICE": way.device, "OMP_NUM_THREADS": "1"}
    env["TORCH_XLA_CC_CALLS"] = way.calls
    env["TORCH_XLA_CC_POD_COLLECTIVES"] = way.by
    env["PYTHONPATH"] = os.pathsep.join([str(way.tree / "python"), env.get("PYTHONPATH", "")])
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def step_ms(way: Way, example: list[str]) -> float:
    """Of a step."""
    script = way.tree / example[0]
    if not script.exists():  # it came later
        script = ROOT / example[0]
    said = []
    with torchrun(way, WITH_THE_POD, str(script), *example[1:], f"--steps={STEPS}") as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("step "):
                said.append(time.perf_counter())
    if running.returncode or len(said) != STEPS:
        return float("nan")
    each_s = [after - before for before, after in itertools.pairwise(said)]
    at_once = max(1.0, RANKS / (os.cpu_count() or 1)) if way.alone else 1.0
    return statistics.median(each_s[WARM:]) * at_once * 1e3


def transfers(rank: int) -> tuple[float, float, float]:
    """GB/s of 64 MiB copied on the host, to the device, and back, with what torch_xla does."""
    x = torch.ones(16 << 20)
    target = torch.empty_like(x)
    there = x.to("xla")

    def rate(copy):
        times = []
        for _ in range(12):
            began = time.perf_counter()
            kept = copy()
            times.append(time.perf_counter() - began)
            del kept
        return x.nbytes / statistics.median(times[2:]) / 1e9

    return rate(lambda: target.copy_(x)), rate(lambda: x.to("xla")), rate(there.cpu)


def start_s(backend: str) -> float:
    """From torchrun's start to its end, with one sum on each rank."""
    began = time.perf_counter()
    with torchrun(Way("POD", "graph"), FIRST_SUM, backend) as running:
        running.communicate()
    assert running.returncode == 0
    return time.perf_counter() - began


def main() -> None:
    """Print all."""
    import torch_xla_cc

    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path)
    parser.add_argument("--way", action="append", choices=list(WAYS))
    parser.add_argument("examples", nargs="*")
    told = parser.parse_args()
    ways = {name: WAYS[name] for name in told.way or WAYS}
    if told.before:
        ways["host, before"] = Way("CPU", tree=told.before.resolve())
    print(
        f"{RANKS} ranks, load {os.getloadavg()[0]:.0f}; ms of a step, and its ratio to the host's"
    )
    print(f"{'':20}{''.join(f'{name:>18}' for name in ways)}{'host':>10}", flush=True)
    for name in told.examples or EXAMPLES:
        host = step_ms(HOST, EXAMPLES[name])
        others = [step_ms(way, EXAMPLES[name]) for way in ways.values()]
        ratios = "".join(f"{ms:11.1f} {f'({ms / host:.2f})':6}" for ms in others)
        print(f"{name:20}{ratios}{host:10.1f}", flush=True)
    if told.way:
        return
    of_pod = torch_xla_cc.launch(transfers, nprocs=1, pod=True)[0]
    os.environ["PJRT_DEVICE"] = "CPU"
    for name, (memcpy, to, back) in (("pod", of_pod), ("CPU client", transfers(0))):
        print(f"{name}, GB/s: memcpy {memcpy:.1f}, to the device {to:.1f}, back {back:.1f}")
    pod, gloo = start_s("xla_cc"), start_s("gloo")
    print(f"one sum by torchrun, s: pod {pod:.1f}, gloo {gloo:.1f}")


if __name__ == "__main__":
    main()
