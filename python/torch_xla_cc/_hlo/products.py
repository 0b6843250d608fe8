"""How often a matrix product or a convolution multiplies two numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .instruction import Array, Instruction

Labels = Mapping[int, str]  # b, f, i, o, and numbers for those of space

# A GPU's libraries.
_MATMUL_CALL = "__cublas"
_CONVOLUTION_CALL = "__cudnn$conv"
_CALL_CONTRACTS = re.compile(r'"lhs_contracting_dimensions":\[([\d",\s]*)\]')
_CONTRACTS = re.compile(r"\blhs_contracting_dims=\{([\d,\s]*)\}")
_LABELS = re.compile(r"\bdim_labels=(\w{2,32})_(\w{2,32})->(\w{2,32})")
_WINDOW = re.compile(r"\bwindow=\{([^{}]*)\}")
_PARTS = re.compile(r"(\w{1,32})=([\d_x-]+)")
_NUMBER = re.compile(r"-?\d{1,18}")
_MOST_STEPS = 1 << 16  # of a window, that are counted one by one


@dataclass(frozen=True)
class Window:
    """One dimension of a convolution's."""

    size: int = 1
    stride: int = 1
    low: int = 0  # padding
    dilation: int = 1  # of the kernel
    base_dilation: int = 1  # of the input

    def positions(self, given: int, taken: int) -> int:
        """How often a place of the window is on a number of the input: not between, or beside."""
        if min(self.stride, self.base_dilation, self.dilation) < 1:
            return 0
        # For a place of the window, `given` places of the output; or the other way round.
        inner, outer = (
            (self.dilation, self.stride)
            if self.size > given
            else (
                self.stride,
                self.dilation,
            )
        )
        many, few = max(self.size, given), min(self.size, given)
        if few > _MOST_STEPS:
            return 0
        last = (taken - 1) * self.base_dilation
        found = 0
        for place in range(few):
            first = place * outer - self.low
            found += _hits(first, inner, many, last, self.base_dilation)
        return found


def _hits(first: int, step: int, count: int, last: int, every: int) -> int:
    """How many of `count` numbers, first, first + step and on, are multiples of `every` to last."""
    begin = max(0, -(first // step)) if first < 0 else 0
    end = min(count - 1, (last - first) // step)
    common = math.gcd(step, every)
    if first % common or end < begin:
        return 0
    period = every // common
    # The first i with first + i * step = 0 modulo `every`.
    solved = (-first // common) * pow(step // common, -1, period) % period if period > 1 else 0
    begin += (solved - begin) % period
    return (end - begin) // period + 1 if end >= begin else 0


def is_convolution(one: Instruction) -> bool:
    """Whether it is one, or a call of a library's."""
    return one.opcode == "convolution" or one.custom_call_target.startswith(_CONVOLUTION_CALL)


def of_matmul(one: Instruction, contracts: Sequence[int]) -> int:
    """`contracts` are the dimensions of the first operand that it sums over."""
    arrays = _arrays(one)
    if len(arrays) < 3:
        return 0
    dims = arrays[0].dims
    return arrays[2].elements * math.prod(dims[dim] for dim in contracts if 0 <= dim < len(dims))


def of_convolution(one: Instruction, labels: Sequence[Labels], windows: Sequence[Window]) -> int:
    """`labels` are of the dimensions of what is taken, of the kernel and of what is given."""
    arrays = _arrays(one)
    if len(arrays) < 3:
        return 0
    taken, kernel, given = arrays
    # The labels of a gradient are those of the convolution whose gradient it is.
    if one.custom_call_target.endswith("BackwardInput"):
        taken, given = given, taken
    elif one.custom_call_target.endswith("BackwardFilter"):
        kernel, given = given, kernel
    sizes: list[dict[str, int]] = []
    for of_array, array in zip(labels, (taken, kernel, given), strict=True):
        rank = len(array.dims)
        sizes.append({label: array.dims[at] for at, label in of_array.items() if 0 <= at < rank})
    products = math.prod(sizes[2].get(label, 0) for label in "bf") * sizes[1].get("i", 0)
    for number, window in enumerate(windows):
        at = str(number)
        products *= window.positions(sizes[2].get(at, 1), sizes[0].get(at, 1))
    return products


def of_text(one: Instruction, attributes: str) -> int:
    """By its attributes, as they are written in HLO text."""
    if one.opcode == "dot" or one.custom_call_target.startswith(_MATMUL_CALL):
        contracts = (_CONTRACTS if one.opcode == "dot" else _CALL_CONTRACTS).search(attributes)
        return of_matmul(one, _numbers(contracts[1])) if contracts else 0
    labels = _LABELS.search(attributes) if is_convolution(one) else None
    if labels is None:
        return 0
    window = _WINDOW.search(attributes)
    return of_convolution(
        one,
        [dict(enumerate(label)) for label in labels.groups()],
        _windows(window[1]) if window else (),
    )


def _arrays(one: Instruction) -> list[Array]:
    """Two operands, and what it gives; what a library works in is given beside that."""
    return [array for some in (*one.operands[:2], one) for array in some.arrays[:1]]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in _NUMBER.findall(text)]


def _windows(text: str) -> list[Window]:
    """Of "size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=1x2 rhs_dilate=2x2"."""
    parts: dict[str, list[int]] = {}
    for name, values in _PARTS.findall(text):
        numbers = [_NUMBER.match(value) for value in values.split("x")]
        parts[name] = [int(number[0]) if number else 1 for number in numbers]

    def part(name: str, at: int, default: int = 1) -> int:
        return parts[name][at] if at < len(parts.get(name, ())) else default

    return [
        Window(
            size=size,
            stride=part("stride", at),
            low=part("pad", at, 0),
            dilation=part("rhs_dilate", at),
            base_dilation=part("lhs_dilate", at),
        )
        for at, size in enumerate(parts.get("size", ()))
    ]
