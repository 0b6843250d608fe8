"""HLO as records, from text (text.py) or from XLA's interchange format (proto.py)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

# A number of more digits is no size.
_NUMBER = re.compile(r"\d{1,18}")
_ARRAY = re.compile(r"\b(\w+)\[([^\[\]]*)\]")
_LAYOUT = re.compile(r"\{[^{}]*\}|/\*[^*]*\*/")
_BITS = {"pred": 8, "token": 0, "opaque": 0, "c64": 64, "c128": 128, "bf16": 16}


@dataclass(frozen=True, slots=True)
class Array:
    """A shape without layout."""

    dtype: str  # as in HLO text: f32
    dims: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"

    @property
    def elements(self) -> int:
        return math.prod(self.dims)

    @property
    def bytes(self) -> int:
        """What it takes in memory, without padding; types of 4 bits and less are packed."""
        return -(-self.elements * bits(self.dtype) // 8)


def bits(dtype: str) -> int:
    """The width of an element: 0 for what has no elements, and for types that are not known."""
    if dtype in _BITS:
        return _BITS[dtype]
    # s4, u8, f16, and the floats named after their parts: f8e4m3fn
    digits = dtype[1:].partition("e")[0]
    return int(digits) if dtype[:1] in "sfu" and digits.isdecimal() and len(digits) < 4 else 0


@dataclass(frozen=True, slots=True)
class Source:
    """Where an instruction comes from, as its metadata says."""

    op_type: str = ""
    op_name: str = ""
    file: str = ""
    line: int = 0


NOWHERE = Source()

Groups = tuple[tuple[int, ...], ...]
Cut = tuple[tuple[int, int, int], ...]  # of each dimension: start, limit, stride


@dataclass(eq=False, slots=True)
class Instruction:
    """One HLO instruction; those it takes as operands are of the same computation."""

    name: str
    opcode: str
    type: str  # as in HLO text, with layouts: "f32[8,128]{1,0}", "(f32[4]{0}, u32[])"
    operands: Sequence[Instruction] = field(repr=False)
    called: tuple[str, ...]  # the computations that a fusion, a call or a reduction runs
    computation: str
    in_entry: bool
    custom_call_target: str = ""
    channel_id: int | None = None
    # Of a collective: None where there is no such attribute; () is all replicas, as one group.
    groups: Groups | None = None
    pairs: tuple[tuple[int, int], ...] | None = None
    dimensions: tuple[int, ...] = ()
    number: int = -1  # of a parameter, and of what get-tuple-element takes
    cut: Cut = ()  # of a slice
    products: int = 0  # of two numbers, of what multiplies matrices
    source: Source = NOWHERE  # of collectives, of what may hold one, and of what takes long
    holds: str = ""  # of what runs computations: what takes longest in them

    @property
    def shape(self) -> str:
        """The type without layouts."""
        return without_layouts(self.type)

    @property
    def layout(self) -> str:
        """Order of dimensions and tiles of an array, "1,0:T(8,128)"; not the memory space."""
        _, _, layout = self.type.partition("{")
        if self.type.startswith("(") or not layout:
            return ""
        return layout.rstrip("}").partition("S(")[0].rstrip(":")

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays that it results in, tuples taken apart."""
        return arrays(self.type)


def without_layouts(type: str) -> str:
    """The text of a type, without what is in braces and comments."""
    return _LAYOUT.sub("", type) if "{" in type or "/*" in type else type


def arrays(type: str) -> tuple[Array, ...]:
    """The arrays of a type, in order; a dimension that varies ("<=8") counts as its most."""
    return tuple(
        Array(dtype, tuple(int(dim) for dim in _NUMBER.findall(dims)))
        for dtype, dims in _ARRAY.findall(without_layouts(type))
    )
