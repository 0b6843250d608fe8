"""What the steps of training stacks are on a pod: programs, time, and losses beside gloo's.

    PYTHONPATH=python python benchmarks/pod_clients.py [name ...]

Each example of examples/clients by torchrun on four ranks (eight by --ranks=8): on a pod, with
calls that stay in the graph; on CPU devices between which the host carries each call; and on CPU
tensors by gloo. By torch_xla's metrics, programs that ran in a step, on average and of the rank
that ran most, and those compiled, after the first ten steps; whether all ranks had the same, by a
run on a pod that takes no other; milliseconds of a step, the median, on the pod, through the host,
and their ratio; how far losses of 30 steps are from gloo's, relatively, at most ("-" where there
are none).
"""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
from typing import NamedTuple
from unittest import mock

import pod_steps

STEPS, WARM = 30, 10
_MARK = "PROGRAMS "
_LOSS = re.compile(r"step \d+: loss (\S+)$")
CLIENTS = {
    "DDP": "ddp.py",
    "DDP, accumulation": "ddp.py --accumulate=2",
    "DDP, bf16 gradients": "ddp.py --compress=1",
    "FSDP1": "fsdp1.py",
    "FSDP1, accumulation": "fsdp1.py --accumulate=2",
    "FSDP1, bf16, clipped": "fsdp1.py --bf16=1 --clip=1",
    "FSDP2": "fsdp2.py",
    "FSDP2, accumulation": "fsdp2.py --accumulate=2",
    "FSDP2, bf16": "fsdp2.py --bf16=1",
    "FSDP2, HSDP": "fsdp2.py --replicas=2",
    "DTensor TP": "dtensor_tp.py",
    "DTensor TP x FSDP": "dtensor_tp.py --tp=2 --fsdp=1",
    "torch pipelining": "pipeline.py",
    "torch pipelining, 1F1B": "pipeline.py --one-f-one-b=1",
    "ZeroRedundancyOptimizer": "zero_optimizer.py",
    "DeepSpeed ZeRO 0": "deepspeed_zero.py --stage=0",
    "DeepSpeed ZeRO 1": "deepspeed_zero.py --stage=1",
    "DeepSpeed ZeRO 2": "deepspeed_zero.py --stage=2",
    "DeepSpeed ZeRO 3": "deepspeed_zero.py --stage=3",
    "accelerate": "accelerate_gpt2.py",
    "Trainer": "trainer_gpt2.py",
    "Trainer, no log": "trainer_gpt2.py --every=1000",
    "Megatron DP": "megatron_gpt.py",
    "Megatron DP, distributed optimizer": "megatron_gpt.py --distributed-optimizer=1",
    "Megatron TP x DP, distributed optimizer": "megatron_gpt.py --tp=2 --distributed-optimizer=1",
    "Megatron TP": "megatron_gpt.py --tp=4",
    "Megatron TP x DP": "megatron_gpt.py --tp=2",
    "Megatron TP, sequence parallel": "megatron_gpt.py --tp=4 --sequence-parallel=1",
    "Megatron experts": "megatron_gpt.py --experts=4 --ep=4",
    "Megatron experts, capacity": "megatron_gpt.py --experts=4 --ep=4 --capacity=2",
    "Megatron PP": "megatron_gpt.py --pp=2",
    "Megatron PP, interleaved": "megatron_gpt.py --pp=2 --vpp=2",
    "torch_xla FSDP": "xla_fsdp.py",
    "torch_xla ZeRO": "xla_zero.py",
}
# Beside what pod_steps.py starts examples with: each rank says what it has compiled and run, when.
COUNTED = """
import json, os, sys, time
import common

def counts():
    return *common._programs(), time.perf_counter()

seen = {"steps": [], "losses": []}

def steps(run, before=common.Run.steps):
    for step in before(run):
        seen["steps"].append(counts())
        yield step
    seen["steps"].append(counts())

def say(run, *args, before=common.Run.say, **kwargs):
    before(run, *args, **kwargs)
    seen["losses"].append(counts())

def end(run, before=common.Run.end):
    if run.is_xla:  # in one piece: lines of ranks mix
        of_rank = seen["steps"] if len(seen["steps"]) > 2 else seen["losses"]
        os.write(1, f"\\nPROGRAMS {json.dumps(of_rank)}\\n".encode())
    before(run)

common.Run.steps, common.Run.say, common.Run.end = steps, say, end
if os.path.basename(sys.argv[0]) in ("xla_fsdp.py", "xla_zero.py"):
    import launched

    def part(*args, before=launched.part):
        seen["steps"].append(counts())
        return before(*args)

    def main(train, *args, before=launched.main, **options):
        def trained(*its):
            losses = train(*its)
            seen["steps"].append(counts())
            os.write(1, f"\\nPROGRAMS {json.dumps(seen['steps'])}\\n".encode())
            return losses

        before(trained, *args, **options)

    launched.part, launched.main = part, main
"""
_LAUNCHED = ("xla_fsdp.py", "xla_zero.py")  # torch_xla's own, whose losses are beside plain torch's
_PATCHED = pod_steps.WITH_THE_POD.replace("runpy.run_path(", COUNTED + "\nrunpy.run_path(")


class Ran(NamedTuple):
    """Of a client's steps."""

    executed: float  # a step
    compiled: int  # after the first
    ms: float
    losses: list[float]


def ran(device: str, words: list[str], steps: int = STEPS) -> Ran | None:
    """Of an example on these devices; None if it failed."""
    os.environ["TORCH_XLA_CC_CALLS"] = "graph" if device == "POD" else "each"
    path, *options = words
    ranks = pod_steps.RANKS
    if path in _LAUNCHED:
        options.append(f"--ranks={ranks}")
    if device == "gloo" and path in _LAUNCHED:
        options.append("--plain")
        ranks = 1
    elif device == "gloo":
        options.append("--backend=gloo")
    script = str(pod_steps.ROOT / "examples/clients" / path)
    on = "CPU" if device == "gloo" else device
    with (
        mock.patch.object(pod_steps, "RANKS", ranks),
        pod_steps.torchrun(on, _PATCHED, script, *options, f"--steps={steps}") as running,
    ):
        out, _ = running.communicate()
    if running.returncode:
        return None
    losses = [float(m[1]) for line in out.splitlines() if (m := _LOSS.match(line))][:steps]
    ranks = [json.loads(line[len(_MARK) :]) for line in out.splitlines() if line.startswith(_MARK)]
    each = [(rows[WARM], rows[-1], len(rows) - 1 - WARM) for rows in ranks if len(rows) > WARM + 1]
    return Ran(
        max(((last[0] - first[0]) / count for first, last, count in each), default=0.0),
        max((last[1] - first[1] for first, last, _ in each), default=0),
        statistics.median(
            [
                (b[2] - a[2]) * 1e3
                for rows in ranks[:1]
                for a, b in zip(rows[WARM:], rows[WARM + 1 :], strict=False)
            ]
            or [float("nan")]
        ),
        losses,
    )


def _apart(ours: list[float], theirs: list[float]) -> str:
    if not ours or len(ours) != len(theirs):
        return "-"
    return f"{max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(ours, theirs, strict=True)):.0e}"


def one_program(words: list[str]) -> str:
    """Whether it runs on a pod that compares each instruction of the ranks' programs."""
    with mock.patch.dict(os.environ, TORCH_XLA_CC_POD_PROGRAMS="same"):
        return "no" if ran("POD", words, steps=WARM) is None else "yes"


def main() -> None:
    """Print all."""
    names = [name for name in sys.argv[1:] if not name.startswith("--")] or list(CLIENTS)
    for flag in sys.argv[1:]:
        if flag.startswith("--ranks="):
            pod_steps.RANKS = int(flag.removeprefix("--ranks="))
    print(f"{pod_steps.RANKS} ranks, load {os.getloadavg()[0]:.0f}", flush=True)
    print("| client | programs | compiled later | one | ms | host | ratio | losses |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in names:
        words = CLIENTS[name].split()
        ours, host, gloo = (ran(device, words) for device in ("POD", "CPU", "gloo"))
        if ours is None:
            print(f"| {name} | failed |", flush=True)
            continue
        before = host.ms if host else float("nan")
        apart = _apart(ours.losses, gloo.losses if gloo else [])
        print(
            f"| {name} | {ours.executed:.1f} | {ours.compiled} | {one_program(words)} "
            f"| {ours.ms:.0f} | {before:.0f} | {ours.ms / before:.2f} | {apart} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
