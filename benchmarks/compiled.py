"""What compilers make of programs of training, ours beside JAX's, with no such device present.

python benchmarks/compiled.py [TARGET...]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import compiled_programs as programs

TARGETS = (
    *("tpu:v5e:2x4", "tpu:v5e:8x8", "tpu:v5e:16x16"),
    *("tpu:v5p:4x4x4", "tpu:v6e:8x8", "tpu:v4:4x4x4", "gpu:h100x8"),
)


class Ops:
    """By torch and torch_xla_cc."""

    def __init__(self, ranks: int, model: int) -> None:
        import torch

        from torch_xla_cc import functions, regions
        from torch_xla_cc import xla_model as xm

        self._functions, self._regions, self._xm = functions, regions, xm
        along = [list(range(first, first + model)) for first in range(0, ranks, model)]
        across = [list(range(first, ranks, model)) for first in range(model)]
        self._groups = {"all": None, "model": along, "data": across}
        self.relu, self.einsum = torch.relu, torch.einsum
        self._ring = [
            [group[i], group[(i + 1) % model]] for group in along for i in range(model)
        ]

    def softmax(self, x: Any) -> Any:
        return x.softmax(-1)

    def split3(self, x: Any) -> Any:
        return x.chunk(3, 1)

    def total(self, x: Any) -> Any:
        return x.float().sum()

    def gather(self, x: Any, axis: str) -> Any:
        return self._functions.all_gather(x, 0, self._groups[axis])

    def scatter(self, x: Any, axis: str) -> Any:
        return self._functions.reduce_scatter("sum", x, 1.0, 0, groups=self._groups[axis])

    def copy(self, x: Any, axis: str) -> Any:
        return self._regions.copy_to_region(x, self._groups[axis])

    def reduce(self, x: Any, axis: str) -> Any:
        return self._regions.reduce_from_region(x, self._groups[axis])

    def exchange(self, x: Any, axis: str) -> Any:
        return self._functions.all_to_all(x, 0, 0, groups=self._groups[axis])

    def shift(self, x: Any, axis: str) -> Any:
        return self._functions.collective_permute(x, self._ring)


def module(program: programs.Program, target: str, ranks: int, model: int) -> bytes:
    """The gradients of its loss."""
    import torch
    import torch_xla

    from torch_xla_cc._inspect import trace

    given = [
        torch.zeros(shape, dtype=torch.bfloat16, device="xla").requires_grad_()
        for shape in program.shapes(ranks, model)
    ]
    torch_xla.sync()

    def step() -> list[Any]:
        program.loss(Ops(ranks, model), *given).backward()
        return [one.grad for one in given]

    return trace.of_call(program.name, step, target, None).module


class Figures(NamedTuple):
    collectives: int
    combined: int  # that several of the program's are in
    overlapped: int
    wire: int  # bytes that come to a rank
    hbm: int
    peak: int
    opcodes: dict[str, int]


def figures(program: Any, ranks: int) -> Figures:
    from collections import Counter

    from torch_xla_cc._aot import collectives
    from torch_xla_cc._hlo import traffic

    found = collectives(program)
    memory = program.memory
    return Figures(
        len(found),
        sum(len(one.operands) > 1 for one in found),
        sum(bool(one.meanwhile) for one in found),
        round(sum(traffic.received(one, ranks) for one in found)),
        round(program.cost.get("bytes accessed", 0)),
        memory.get("arguments", 0) + memory.get("outputs", 0) + memory.get("temporaries", 0),
        dict(Counter(one.opcode for one in found)),
    )


def of_target(target: str) -> None:
    from torch_xla_cc._aot import CompilerError, compile_hlo

    ranks, model = programs.mesh(target)
    with tempfile.TemporaryDirectory() as folder:
        side = Path(__file__).with_name("compiled_jax.py")
        subprocess.run([sys.executable, str(side), folder, target], check=True)
        for number, program in enumerate(programs.PROGRAMS):
            for name, hlo, where, replicas in (
                ("ours", module(program, target, ranks, model), target, ranks),
                ("jax", (Path(folder) / f"{number}.hlo").read_bytes(), f"spmd:{target}", ranks),
            ):
                try:
                    made = figures(compile_hlo(hlo, where, replicas=replicas, timeout_s=300), ranks)
                except CompilerError as error:
                    print(target, program.name, name, "FAILED", str(error)[:300])
                    continue
                print(f"{target:14} {program.name:24} {name:5} {made}", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PJRT_DEVICE", "CPU")
    for one in sys.argv[1:] or TARGETS:
        of_target(one)
