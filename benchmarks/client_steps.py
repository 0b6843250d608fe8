"""Writes docs/steps.md: what whole steps of training stacks become in the programs of compilers.

    PYTHONPATH=python python benchmarks/client_steps.py [target ...]

Each example of examples/clients, unmodified, as one rank of a dry run (`txcc inspect --rank`), and
compiled by the target's own compiler; and an MLP in five ways, beside JAX's program of the same
(steps_mlp.py, steps_jax.py). It takes some twenty minutes. With targets it prints their part, and
writes nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import compiled_figures
import compiled_programs as programs
import steps_sizes as sizes

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/steps.md"
LIMIT_S = 400
RANK = 1
MOST_THREADS = 8  # ranks that run here as threads
TARGETS = ("tpu:v5e:2x4", "tpu:v5e:16x16", "tpu:v5p:4x4x4", "gpu:h100x8")
CLIENTS = {  # the script, its step, its own options
    "DDP": "ddp.py 3",
    "DDP, two batches a step": "ddp.py 3 --accumulate=2",
    "ZeroRedundancyOptimizer": "zero_optimizer.py 3",
    "FSDP1": "fsdp1.py 2",
    "FSDP2": "fsdp2.py 2",
    "FSDP2, bf16": "fsdp2.py 2 --bf16=1",
    "FSDP2, HSDP": "fsdp2.py 2 --replicas=2",
    "DTensor TP": "dtensor_tp.py 2",
    "DTensor TP x FSDP": "dtensor_tp.py 2 --tp=2 --fsdp=1",
    "DeepSpeed ZeRO 0": "deepspeed_zero.py 2 --stage=0",
    "DeepSpeed ZeRO 1": "deepspeed_zero.py 2 --stage=1",
    "DeepSpeed ZeRO 2": "deepspeed_zero.py 2 --stage=2",
    "DeepSpeed ZeRO 3": "deepspeed_zero.py 2 --stage=3",
    "accelerate": "accelerate_gpt2.py 3",
    "Trainer": "trainer_gpt2.py 3",
    "Megatron DP": "megatron_gpt.py 2",
    "Megatron TP x DP": "megatron_gpt.py 2 --tp=4",
    "Megatron TP x DP, sequence parallel": "megatron_gpt.py 2 --tp=4 --sequence-parallel=1",
}
LAUNCHED = {  # of torch_xla: no calls of torch.distributed, so all ranks run, where they are eight
    "torch_xla FSDP": "xla_fsdp.py 2",
    "torch_xla ZeRO": "xla_zero.py 2",
}
MLP = {  # of steps_mlp.py: how, and its step
    "DDP": "ddp 3",
    "FSDP2": "fsdp 2",
    "FSDP2, bf16": "fsdp_bf16 2",
    "DTensor TP": "tp 2",
    "DTensor TP, sequence parallel": "sp 2",
}
_HEAD = """\
# Steps of training stacks, as compilers have them

Written by `benchmarks/client_steps.py`: examples of `examples/clients`, unmodified, as rank {rank}
of a dry-run world ([inspect.md](inspect.md#one-rank-of-a-script)), compiled by each target's own
compiler; torch_xla's own FSDP and ZeRO as eight ranks, and for no more. The models are small, so
these rows say what becomes of the calls, and not how fast a large model is. How programs of layers
compare with JAX's stands in [compiled.md](compiled.md).

- programs: of the step; several where it reads, whose figures are added up, and HBM is that of the
  largest ([inspect.md](inspect.md#steps-that-read)).
- traced: collectives that the step calls; compiled: collective instructions in the program, of
  which *overlapped* compute beside them, and *waiting* do not.
- link: bytes of the step on the busiest link; fewest: the fewest that these collectives need on
  that topology ([inspect.md](inspect.md)). That is counted of each by itself: broadcasts that a
  compiler combines can come below it.
- HBM: arguments, outputs that take no argument's place, and temporaries, of one chip.

The MLP has two pairs of layers, {width} by {inner} and back, with biases, in float32, and AdamW.
Torch's step is a script's (`benchmarks/steps_mlp.py`). JAX's is `jit` of a step with a sharding for
each array (`benchmarks/steps_jax.py`), whose compiler chooses the collectives. There are {tokens}
tokens for each rank, or for all where ranks share the layers. What differs:

- Where a compiler sees that a value is only used in bf16 (a TPU multiplies float32 so), it sends it
  so, at half the bytes: weights in FSDP, and what enters layers that share a sequence.
- Gradients are outputs of PyTorch's step, since `.grad` keeps them until `zero_grad()`.
- No argument is overwritten by an output here. In a run it is, on both sides: by
  `donate_argnums` in JAX, and by torch_xla on its own.
"""
_COLUMNS = (
    "programs",
    "traced",
    "compiled",
    "overlapped",
    "waiting",
    "link",
    "fewest",
    "ratio",
    "HBM",
)
_BESIDE = (
    *("compiled, ours / JAX's", "waiting", "link, ours", "JAX", "ratio"),
    *("HBM, ours", "JAX", "ratio"),
)


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def _row(said: list[dict[str, Any]]) -> list[str]:
    """Of a step's programs: of all of them together, and the memory of the largest."""
    for one in said:
        if one["failure"]:
            return [f"failed: {one['failure'].splitlines()[0][:80]}"]

    def total(name: str) -> int:
        return sum(one["times"] * one["summary"][name] for one in said)

    link, fewest = total("link_bytes"), total("fewest_link_bytes")
    return [
        str(sum(one["times"] for one in said)),
        *(str(total(name)) for name in ("traced", "instructions", "overlapped", "waits")),
        _size(link),
        _size(fewest) if fewest else "-",
        f"{link / fewest:.2f}" if fewest else "-",
        _size(max(map(_held, said))) if said[0]["memory"] else "-",
    ]


def _held(said: dict[str, Any]) -> int:
    """Bytes of one chip."""
    memory = said["memory"]
    return memory["arguments"] + memory["outputs"] + memory["temporaries"] - memory["aliased"]


def _inspected(
    path: Path, step: str, target: str, options: list[str], alone: bool = True
) -> list[dict[str, Any]] | str:
    """What is said of the programs of the script's step, or why there is nothing."""
    command = [sys.executable, "-m", "txcc", "inspect", f"--target={target}"]
    command += [f"--rank={RANK}"] if alone else []
    command += [f"--step={step}", "--timeout=300", "--format=json", str(path), "--", *options]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not in {LIMIT_S} s"
    if not done.stdout.strip():
        last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
        return f"refused: {last[:120]}"
    said: list[dict[str, Any]] = json.loads(done.stdout)
    return said


def _of_client(words: str, target: str) -> list[str]:
    script, step, *options = words.split()
    alone = words not in LAUNCHED.values()
    if not alone:
        ranks = programs.mesh(target)[0]
        if ranks > MOST_THREADS:
            return ["-"]
        options = [*options, f"--ranks={ranks}"]
    said = _inspected(ROOT / "examples/clients" / script, step, target, options, alone)
    return [said] if isinstance(said, str) else _row(said)


def _of_jax(target: str) -> dict[str, compiled_figures.Figures | str]:
    """By how it is written."""
    from torch_xla_cc._aot import CompilerError, compile_hlo

    ranks = programs.mesh(target)[0]
    platform = "tpu" if target.startswith("tpu:") else "cuda"
    found: dict[str, compiled_figures.Figures | str] = {}
    with tempfile.TemporaryDirectory() as folder:
        side = Path(__file__).with_name("steps_jax.py")
        subprocess.run([sys.executable, str(side), folder, str(ranks), platform], check=True)
        for words in MLP.values():
            how = words.split()[0]
            module = (Path(folder) / f"{how}.hlo").read_bytes()
            try:
                made = compile_hlo(module, f"spmd:{target}", timeout_s=LIMIT_S)
            except CompilerError as error:
                found[how] = str(error).splitlines()[0]
                continue
            memory, cost = dict(made.memory), dict(made.cost)
            found[how] = compiled_figures.figures(module, made.hlo, memory, cost, target, ranks)
    return found


def _beside_jax(
    programs_of_step: list[dict[str, Any]] | str, jax: compiled_figures.Figures | str
) -> list[str]:
    if isinstance(programs_of_step, str) or isinstance(jax, str):
        return [programs_of_step if isinstance(programs_of_step, str) else f"JAX: {jax}"]
    (said,) = programs_of_step
    if said["failure"]:
        return [f"failed: {said['failure'].splitlines()[0][:80]}"]
    summary = said["summary"]
    pairs = [(summary["link_bytes"], jax.link), (_held(said), jax.peak)]
    return [
        f"{summary['instructions']} / {jax.instructions}",
        f"{summary['waits']} / {jax.waits}",
        *(
            text
            for ours, theirs in pairs
            for text in (_size(ours), _size(theirs), f"{ours / theirs:.2f}")
        ),
    ]


def _table(columns: tuple[str, ...], rows: Iterator[tuple[str, list[str]]]) -> list[str]:
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, row in rows:
        cells = row + [""] * (len(columns) - len(row))
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def part(target: str) -> str:
    """The tables of a target."""
    both = {**CLIENTS, **LAUNCHED}
    clients = ((name, _of_client(words, target)) for name, words in both.items())
    lines = [f"## {target}", "", *_table(_COLUMNS, clients), ""]
    jax = _of_jax(target)

    def beside() -> Iterator[tuple[str, list[str]]]:
        for name, words in MLP.items():
            how, step = words.split()
            script = Path(__file__).with_name("steps_mlp.py")
            yield name, _beside_jax(_inspected(script, step, target, [f"--how={how}"]), jax[how])

    return "\n".join([*lines, "The MLP, ours beside JAX's:", "", *_table(_BESIDE, beside())]) + "\n"


def main() -> None:
    """Write the page, or print parts."""
    asked = sys.argv[1:]
    parts = [part(target) for target in asked or TARGETS]
    if not asked:
        said = {"width": sizes.WIDTH, "inner": sizes.INNER, "tokens": sizes.TOKENS}
        PAGE.write_text("\n".join([_HEAD.format(rank=RANK, **said), *parts]))


if __name__ == "__main__":
    main()
