"""Questions about a compiled program: which collectives it has, and what comes before them."""

from __future__ import annotations

from .._hlo.collectives import Collective, finder
from .._hlo.instruction import Instruction
from .program import CompiledProgram


def collectives(program: CompiledProgram) -> list[Collective]:
    """The collectives that the program runs, one for each, whatever form they have."""
    return finder(program.computations()).found()


def elementwise_before(program: CompiledProgram, collective: Collective) -> list[Instruction]:
    """The passes over data between the parameters of a program and one of its `collectives`.

    That is each instruction on the way which computes, or copies into another layout, or is a
    fusion; not what only moves data to another memory, not scalars, not other collectives.
    """
    return finder(program.computations()).passes_before(collective)
