"""What is said in a program's StableHLO, which jaxlib makes of HLO, before it is compiled."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MAIN = "func.func @main("
_ARGUMENT = re.compile(r"(%arg(\d+): tensor<[^<>]*(?:<[^<>]*>)?>)( \{)?")
_DONOR = "jax.buffer_donor = true"


def with_donors(module: str, donors: Sequence[int]) -> str:
    """Outputs may take the buffers of these parameters: the conversion from HLO loses that."""
    wanted = set(donors)

    def marked(argument: re.Match[str]) -> str:
        if int(argument[2]) not in wanted:
            return argument[0]
        more = f" {{{_DONOR}, " if argument[3] else f" {{{_DONOR}}}"  # a sharding is there as well
        return argument[1] + more

    before, main, rest = module.partition(_MAIN)
    head, line_end, body = rest.partition("\n")
    return before + main + _ARGUMENT.sub(marked, head) + line_end + body
