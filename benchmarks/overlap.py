"""Which collectives of programs of training run beside matmuls, and which options change that.

python benchmarks/overlap.py [TARGET...]   the table of docs/overlap.md; compiles, and runs nothing
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests" / "harness"))

import compiled
import compiled_programs as programs
from overlapping import Found, found

TARGETS = ("tpu:v5e:2x4", "tpu:v6e:2x4", "tpu:v4:2x2x2", "tpu:v5p:2x2x2", "gpu:h100x8")


def in_steps(ops: Any, *given: Any) -> Any:
    """sequence_parallel, with matmuls taken apart in steps."""
    from torch_xla_cc import regions

    qkv, out, up, down, x = given
    groups = ops._groups["model"]
    # Attention needs the whole sequence between its matmuls; its first one is that of qkv.
    heads = out.shape[0] * programs.HEADS // programs.WIDTH
    size = programs.WIDTH // programs.HEADS
    split = regions.all_gather_matmul(x, qkv, 0, groups)
    q, k, v = (part.reshape(split.shape[0], heads, size) for part in ops.split3(split))
    scores = ops.softmax(ops.einsum("qhd,khd->hqk", q, k))
    mixed = ops.einsum("hqk,khd->qhd", scores, v).reshape(split.shape[0], heads * size)
    x = x + regions.matmul_reduce_scatter(mixed, out, 0, groups)
    y = ops.relu(regions.all_gather_matmul(x, up, 0, groups))
    return ops.total(x + regions.matmul_reduce_scatter(y, down, 0, groups))


_SEQUENCE = programs.PROGRAMS[4]
PROGRAMS = [
    *programs.PROGRAMS[:5],
    programs.Program("the same, in steps", _SEQUENCE.shapes, in_steps),
    *programs.PROGRAMS[5:],
]
# What changes something, of all that was tried: docs/overlap.md.
_TPU = {
    "xla_jf_crs_combiner_threshold_in_bytes": 0,
    "xla_enable_async_all_reduce": True,
    "xla_tpu_enable_async_collective_fusion_fuse_all_reduce": True,
    "xla_max_concurrent_async_all_gathers": 4,
    "xla_tpu_enable_async_all_to_all": True,
}
_GPU = {"xla_gpu_enable_latency_hiding_scheduler": True}
OPTIONS: Mapping[str, Mapping[str, Any]] = {"tpu": _TPU, "gpu": _GPU}


def line(made: Sequence[Found]) -> str:
    """Of each opcode: how many run beside matmuls, of how many; MB that nothing hides."""
    words = []
    for opcode in sorted({one.opcode for one in made}):
        some = [one for one in made if one.opcode == opcode]
        words.append(f"{opcode} {sum(one.beside for one in some)}/{len(some)}")
    waits = sum(one.bytes for one in made if not one.beside)
    total = sum(one.bytes for one in made)
    return f"{', '.join(words)}; {waits / 1e6:.0f} of {total / 1e6:.0f} MB wait"


def of_target(target: str) -> None:
    from torch_xla_cc._aot import CompilerError, compile_hlo

    ranks, model = programs.mesh(target)
    for program in PROGRAMS:
        module = compiled.module(program, target, ranks, model)
        for name, some in (("as it is", {}), ("options", OPTIONS[target[:3]])):
            try:
                made = line(found(compile_hlo(module, target, options=some), ranks))
            except (CompilerError, ValueError) as error:
                made = f"FAILED {str(error)[:200]}"
            print(f"{target:14} {program.name:24} {name:9} {made}", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PJRT_DEVICE", "CPU")
    for one in sys.argv[1:] or TARGETS:
        of_target(one)
