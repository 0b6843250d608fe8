"""What compilers make of programs of training, ours beside JAX's, with no such device present.

python benchmarks/compiled.py [--write] [TARGET...]

Programs are kept in build/compiled as they come, so that an interrupted run goes on where it was;
remove that folder to begin anew. --write makes docs/compiled.md of what is there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import compiled_figures
import compiled_page
import compiled_programs as programs
import pictures

KEPT = Path(__file__).parent.parent / "build" / "compiled"
SIDES = ("ours", "jax")
_TIMEOUT_S = 400.0

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
        self._ring = [[group[i], group[(i + 1) % model]] for group in along for i in range(model)]

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


def modules(target: str, some: list[programs.Program]) -> Iterator[tuple[str, str, bytes]]:
    """(program, side, module), of both sides."""
    ranks, model = programs.mesh(target)
    with tempfile.TemporaryDirectory() as folder:
        side = Path(__file__).with_name("compiled_jax.py")
        names = [program.name for program in some]
        subprocess.run([sys.executable, str(side), folder, target, *names], check=True)
        for program in some:
            yield program.name, "ours", module(program, target, ranks, model)
            yield program.name, "jax", (Path(folder) / f"{program.name}.hlo").read_bytes()


def compiled_for(side: str, target: str) -> str:
    """JAX's ranks are partitions of one program, torch_xla's are replicas of it."""
    return f"spmd:{target}" if side == "jax" else target


def of_target(target: str) -> None:
    """Compiles what is not kept yet."""
    from torch_xla_cc._aot import CompilerError, compile_hlo

    def stem(name: str, side: str) -> Path:
        return compiled_page.stem(KEPT, target, name, side)

    missing = [
        program
        for program in programs.PROGRAMS
        if not all(stem(program.name, side).with_suffix(".json").exists() for side in SIDES)
    ]
    for name, side, hlo in modules(target, missing) if missing else ():
        began, program, failure = time.monotonic(), None, ""
        try:
            program = compile_hlo(hlo, compiled_for(side, target), timeout_s=_TIMEOUT_S)
        except CompilerError as error:
            failure = str(error).splitlines()[0]
        compiled_figures.kept(stem(name, side), hlo, program, failure)
        print(f"{target} {name}, {side}: {time.monotonic() - began:.0f} s {failure}", flush=True)


def main() -> None:
    """Compile, print, and write if asked."""
    os.environ.setdefault("PJRT_DEVICE", "CPU")
    targets = [argument for argument in sys.argv[1:] if argument != "--write"]
    for one in targets or TARGETS:
        of_target(one)
    page = compiled_page.markdown(KEPT, TARGETS)
    print(page)
    if "--write" in sys.argv[1:]:
        compiled_page.REPORT.write_text(page)
        pictures.draw(compiled_page.REPORT.name)


if __name__ == "__main__":
    main()
