"""Opcodes of HLO, as far as it matters here what they are."""

from __future__ import annotations

COLLECTIVES = frozenset(
    {
        "all-gather",
        "all-reduce",
        "all-to-all",
        "collective-broadcast",
        "collective-permute",
        "ragged-all-to-all",
        "recv",
        "reduce-scatter",
        "send",
    }
)

# Instructions that run a called computation as part of themselves.
WRAPPERS = frozenset({"fusion", "async-start"})

# Instructions that compute nothing: they name, group or move data.
MOVES = frozenset(
    {
        "add-dependency",
        "after-all",
        "async-done",
        "async-update",
        "bitcast",
        "constant",
        "copy-done",
        "copy-start",
        "get-tuple-element",
        "opt-barrier",
        "parameter",
        "tuple",
    }
)
# A TPU compiler moves a tensor into fast memory by asynchronous slices, and takes those together by
# a ConcatBitcast.
MOVING_CALLS = frozenset({"ConcatBitcast"})


def plain(opcode: str) -> str:
    """The opcode without what makes it half of an asynchronous pair."""
    return opcode.removesuffix("-start").removesuffix("-done")


def is_collective(opcode: str) -> bool:
    """Whether it is a collective, or half of one."""
    return plain(opcode) in COLLECTIVES
