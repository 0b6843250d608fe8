"""Which collectives of a compiled program run beside matmuls, by the schedule of the program."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch_xla_cc._hlo import traffic
from torch_xla_cc._hlo.collectives import finder

_MULTIPLY = {"dot", "convolution"}
_GEMM = "__cublas"  # how custom calls of a GPU that multiply begin


class Found(NamedTuple):
    """A collective of a compiled program."""

    opcode: str
    beside: bool  # matmuls, while it runs
    bytes: int  # that come to a rank


def found(program: Any, ranks: int) -> list[Found]:
    """The collectives of a CompiledProgram, in each computation in the order they begin."""
    reader = finder(program.computations())

    def multiplies(one: Any) -> bool:
        within = {one.opcode, one.custom_call_target, *reader.contents(one)}
        return bool(within & _MULTIPLY) or any(name.startswith(_GEMM) for name in within)

    return [
        Found(one.opcode, any(map(multiplies, one.meanwhile)), round(traffic.received(one, ranks)))
        for one in reader.found()
    ]
