"""Whether XLA:CPU ends a collective before it begins the next, in the text of what it compiled.

It knows of calls what they read and write; of collectives it keeps only the order in which they
begin, and a call begins before what is in it. So each call has to write a token that the next one
reads.
"""

import re

from torch_xla_cc._hlo.opcodes import is_collective

_COMPUTATION = re.compile(r"^%\S+ \(.*?\n}", re.M | re.S)
_DEFINED = re.compile(r"^\s*(?:ROOT )?(%\S+) = .*? ([a-z][a-z0-9-]*)\(", re.M)
_RETURNED = re.compile(r"ROOT (?:.*? tuple\(.*)?(%[^%\s,)]+)")


def writers(text):
    """What makes the token that each computation with a collective returns."""
    found = []
    for computation in _COMPUTATION.findall(text):
        made = dict(_DEFINED.findall(computation))
        if any(map(is_collective, made.values())):
            found.append(made[_RETURNED.search(computation)[1]])
    return found
