"""How a compiler took an instruction."""

from __future__ import annotations

from typing import NamedTuple

NATIVE, REFUSED, CRASHED, TIMEOUT, WRONG = "native", "refused", "crashed", "timeout", "wrong"
SLOW = "slow"  # taken, but the fallback is the better form


class Outcome(NamedTuple):
    """How a compiler took an instruction."""

    result: str  # one of the words above
    becomes: str = ""  # the collectives of the optimised program: "all-reduce", "2 all-gather"
    says: str = ""  # the first line of the compiler's message
