"""What a compiler makes of a traced program, for the device that is here or for one that is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .. import _aot, _hlo_pb
from .._hlo import proto
from .._hlo.collectives import Finder, finder
from .._hlo.instruction import arrays
from .._hlo.text import Computation

_CPU_CHILD = Path(__file__).with_name("cpu_child.py")


@dataclass(frozen=True)
class Compiled:
    """An optimised program, or why there is none."""

    computations: tuple[Computation, ...] = ()
    memory: Mapping[str, int] = field(default_factory=dict)  # bytes, as the compiler states them
    failure: str = ""

    def finder(self) -> Finder:
        return finder(self.computations)


def compiled(module: bytes, target: str, world: int, timeout_s: float) -> Compiled:
    """Compile a serialized HloModuleProto in a child process; its crash is a `failure`.

    ValueError for a target that does not exist, CompilerMissing if its compiler is not installed.
    """
    try:
        if is_cpu(target):
            return Compiled(tuple(_computations(_on_cpu(module, world, timeout_s))))
        if ":" not in target:  # the running device, if it is no CPU
            return Compiled(
                failure=f"the compiler of the running device, {target!r}, is not asked. Name a "
                "target with its topology, such as 'tpu:v5e:2x4', and pass a function"
            )
        program = _aot.compile_hlo(module, target, replicas=world, timeout_s=timeout_s)
    except _aot.CompilerMissing:
        raise
    except _aot.CompilerError as error:
        return Compiled(failure=str(error))
    return Compiled(tuple(_computations(program.hlo)), program.memory)


def check_target(target: str) -> None:
    """ValueError if nothing can be compiled for it."""
    if not is_cpu(target):
        _aot.parse_target(target)


def is_cpu(target: str) -> bool:
    """Whether it is the CPU's compiler that is asked."""
    return target.partition(":")[0] == "cpu"


def _computations(hlo: bytes) -> list[Computation]:
    return list(proto.computations(_hlo_pb.HloModuleProto.FromString(hlo)))


def _on_cpu(module: bytes, world: int, timeout_s: float) -> bytes:
    shape = _hlo_pb.HloModuleProto.FromString(module).host_program_shape
    parameters = [
        (array.dtype, array.dims)
        for parameter in shape.parameters
        for array in arrays(proto.type_text(parameter))
    ]
    head = json.dumps({"ranks": world, "parameters": parameters}).encode()
    # The caller's flags may have this process dump, and read what it is not meant to.
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    try:
        child = subprocess.run(
            [sys.executable, str(_CPU_CHILD)],
            input=head + b"\n" + module,
            capture_output=True,
            env=environment,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _aot.CompilerTimeout(f"compiling for 'cpu' took more than {timeout_s} s") from None
    if child.returncode == 0:
        return child.stdout
    raise _aot.crash("cpu", child.returncode, child.stderr.decode(errors="replace"))
