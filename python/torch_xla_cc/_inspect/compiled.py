"""What a compiler makes of a traced program, for the device that is here or for one that is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .. import _aot
from .._hlo import proto, protobuf
from .._hlo.collectives import Finder, finder
from .._hlo.text import Computation


@dataclass(frozen=True)
class Compiled:
    """An optimised program, or why there is none."""

    computations: tuple[Computation, ...] = ()
    memory: Mapping[str, int] = field(default_factory=dict)  # bytes, as the compiler states them
    failure: str = ""

    def finder(self) -> Finder:
        return finder(self.computations)


def compiled(
    module: bytes,
    target: str,
    world: int,
    timeout_s: float,
    options: _aot.Options | None = None,
) -> Compiled:
    """Compile a serialized HloModuleProto in a child process; its crash is a `failure`.

    ValueError for a target or an option that does not exist, CompilerMissing if its compiler is not
    installed.
    """
    try:
        if is_cpu(target):
            made = _aot.compile_on_cpu(module, world, timeout_s, options=options)
            return Compiled(tuple(_computations(made)))
        if ":" not in target:  # the running device, if it is no CPU
            return Compiled(
                failure=f"the compiler of the running device, {target!r}, is not asked. Name a "
                "target with its topology, such as 'tpu:v5e:2x4', and pass a function"
            )
        program = _aot.compile_hlo(
            module, target, replicas=world, timeout_s=timeout_s, options=options
        )
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
    return list(proto.computations(protobuf.HloModuleProto.FromString(hlo)))
