"""A compiled program: the optimised HLO, and its instructions as small records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module

from .._hlo import proto, protobuf
from .._hlo.instruction import Instruction
from .._hlo.text import Computation
from .._runtime.versions import how_to_install
from .errors import CompilerMissing


@dataclass(frozen=True)
class CompiledProgram:
    """What a compiler made of a module."""

    target: str
    hlo: bytes = field(repr=False)  # a serialized HloModuleProto, with layouts and a schedule
    memory: Mapping[str, int]  # bytes: code, arguments, outputs, aliased, temporaries
    cost: Mapping[str, float]  # the compiler's own estimates, under its own names

    def text(self) -> str:
        """The program as HLO text, which jaxlib prints."""
        try:
            printer = import_module("jaxlib.xla_client")._xla
        except ImportError as missing:
            raise CompilerMissing(
                "CompiledProgram.text() prints HLO with the package jaxlib, which is not "
                f"installed: {how_to_install('aot')}"
            ) from missing
        return str(printer.HloModule.from_serialized_hlo_module_proto(self.hlo).to_string())

    def computations(self) -> Iterator[Computation]:
        """The computations, callees before their callers, with a schedule."""
        return proto.computations(protobuf.HloModuleProto.FromString(self.hlo))

    def instructions(self) -> list[Instruction]:
        """The instructions of all computations, each after its operands."""
        return [one for computation in self.computations() for one in computation.instructions]
