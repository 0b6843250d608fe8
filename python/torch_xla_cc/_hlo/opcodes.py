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

# What takes long: a fusion is called after the first of these that it has.
HEAVY = ("convolution", "dot", "custom-call", "sort", "scatter", "reduce-window", "reduce")

# What may multiply matrices.
PRODUCTS = frozenset({"convolution", "custom-call", "dot"})

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
        "dynamic-slice-done",
        "dynamic-slice-start",
        "get-tuple-element",
        "opt-barrier",
        "parameter",
        "slice-done",
        "slice-start",
        "tuple",
    }
)
# A TPU compiler moves a tensor into fast memory by asynchronous slices, and takes those together by
# a ConcatBitcast.
MOVING_CALLS = frozenset({"AllocateBuffer", "ConcatBitcast"})

# A TPU compiler spreads a collective over fusions. The first calls this.
CHAIN_BEGINS = "AsyncCollectiveStart"
# The last calls this.
CHAIN_ENDS = "AsyncCollectiveDone"
# Those between compute beside it, and call a computation whose name begins so.
CHAIN_GOES_ON = "async_collective_fusion"


def plain(opcode: str) -> str:
    """The opcode without what makes it half of an asynchronous pair."""
    return opcode.removesuffix("-start").removesuffix("-done")


def has_source(opcode: str) -> bool:
    """Whether it matters where such an instruction comes from."""
    return opcode in WRAPPERS or opcode in HEAVY or opcode == "call" or is_collective(opcode)


def is_collective(opcode: str) -> bool:
    """Whether it is a collective, or half of one."""
    return plain(opcode) in COLLECTIVES
