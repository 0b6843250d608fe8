"""What is said in a program's StableHLO, which jaxlib makes of HLO, before it is compiled."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MAIN = "func.func @main("
_ARGUMENT = re.compile(r"%arg(\d+): tensor<[^<>]*(?:<[^<>]*>)?>")


def with_donors(module: str, donors: Sequence[int]) -> str:
    """Outputs may take the buffers of these parameters: the conversion from HLO loses that."""
    wanted = set(donors)

    def marked(argument: re.Match[str]) -> str:
        attribute = " {jax.buffer_donor = true}" if int(argument[1]) in wanted else ""
        return argument[0] + attribute

    before, main, rest = module.partition(_MAIN)
    head, line_end, body = rest.partition("\n")
    return before + main + _ARGUMENT.sub(marked, head) + line_end + body
