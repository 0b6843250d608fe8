"""What could be written in another way, and what that would save: docs/inspect.md, "Advice"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..._hlo import proto, protobuf
from ..._hlo.flow import TooLargeError
from ..._hlo.text import Computation
from ..compiled import Compiled
from .again import repeated, small
from .cuts import all_gathers, all_reduces
from .fallbacks import fallbacks
from .study import Advice, Study
from .transposes import transposed

if TYPE_CHECKING:
    from ..trace import Traced

__all__ = ["Advice", "of_programs", "of_traced"]


def of_traced(traced: Traced, after: Compiled) -> tuple[Advice, ...]:
    """On a program that was traced here; without a compiled one on its fallbacks alone."""
    found = tuple(fallbacks(traced.calls, traced.target, traced.world))
    if after.failure or not traced.module:
        return found
    module = protobuf.HloModuleProto.FromString(traced.module)
    before = tuple(proto.computations(module))
    return of_programs(before, after.computations, traced.world, traced.target) + found


def of_programs(
    before: Sequence[Computation], after: Sequence[Computation], world: int, target: str = ""
) -> tuple[Advice, ...]:
    """On a program before and after a compiler; on all but fallbacks."""
    try:
        study = Study(before, after, target, world)
        return tuple(
            advice
            for kind in (all_reduces, all_gathers, repeated, small, transposed)
            for advice in kind(study)
        )
    except TooLargeError:
        return ()
