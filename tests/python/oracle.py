"""What each collective means, in plain NumPy, over a list of arrays: one a rank.

A Case is one call that every rank makes; `meaning` says what the ranks shall get and `issue` makes
the call on a rank. Arguments are named as in torch_xla_cc.xla_model. `put` and `take` carry arrays
to a device and back, bit by bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch
import torch_xla

from torch_xla_cc import Channel
from torch_xla_cc import xla_model as xm

Arrays = list[np.ndarray]  # by rank
Groups = Sequence[Sequence[int]] | None

# By HLO's name.
DTYPES: dict[str, tuple[Any, torch.dtype]] = {
    "pred": (np.bool_, torch.bool),
    "s8": (np.int8, torch.int8),
    "s16": (np.int16, torch.int16),
    "s32": (np.int32, torch.int32),
    "s64": (np.int64, torch.int64),
    "u8": (np.uint8, torch.uint8),
    "u16": (np.uint16, torch.uint16),
    "u32": (np.uint32, torch.uint32),
    "u64": (np.uint64, torch.uint64),
    "f16": (np.float16, torch.float16),
    "bf16": (ml_dtypes.bfloat16, torch.bfloat16),
    "f32": (np.float32, torch.float32),
    "f64": (np.float64, torch.float64),
    "c64": (np.complex64, torch.complex64),
    "c128": (np.complex128, torch.complex128),
    "f8e4m3fn": (ml_dtypes.float8_e4m3fn, torch.float8_e4m3fn),
    "f8e5m2": (ml_dtypes.float8_e5m2, torch.float8_e5m2),
}
_TORCH = {np.dtype(array): tensor for array, tensor in DTYPES.values()}
_NUMPY = {tensor: np.dtype(array) for array, tensor in DTYPES.values()}

INTEGERS = ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64")
COMPLEX = ("c64", "c128")
FLOATS = ("f16", "bf16", "f32", "f64", "f8e4m3fn", "f8e5m2")
BITWISE = ("and", "or", "xor")


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(DTYPES[name][0])


def reduce_kinds(name: str) -> list[str]:
    """The kinds that a dtype has."""
    kinds = ["sum", "mul"]
    if name not in COMPLEX:
        kinds += ["min", "max"]
    if name not in COMPLEX and name not in FLOATS:
        kinds += BITWISE
    if name != "pred":
        kinds += ["average", "premultiplied_sum"]
    return kinds


# To a device and back.


def to_torch(array: np.ndarray) -> torch.Tensor:
    flat = np.ascontiguousarray(array).reshape(-1)
    if not flat.size:
        return torch.empty(array.shape, dtype=_TORCH[array.dtype])
    tensor = torch.from_numpy(flat.view(np.uint8).copy()).view(_TORCH[array.dtype])
    return tensor.reshape(array.shape)


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return flat.view(_NUMPY[tensor.dtype]).reshape(tuple(tensor.shape)).copy()


def put(array: np.ndarray) -> torch.Tensor:
    """The array as a tensor on this rank's device."""
    if array.dtype == np.complex128:
        # torch_xla 2.9 loses the imaginary part, both ways (test_what_transfers_lose). And not by
        # torch.complex: torch_xla does that on the CPU, and what it does there it counts in a map
        # without a lock, in which ranks that are threads may meet (docs/ranks.md).
        parts = np.ascontiguousarray(array).view(np.float64).reshape(*array.shape, 2)
        return torch.view_as_complex(put(parts))
    # Without dimensions it would be a constant in the graph, and a graph of its own on every rank.
    return to_torch(array).reshape(array.shape or (1,)).to(torch_xla.device()).reshape(array.shape)


def readable(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with the same bits that can be transferred."""
    return torch.view_as_real(tensor) if tensor.dtype == torch.complex128 else tensor


def take(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's value."""
    array = to_numpy(readable(tensor).cpu())
    return array.view(np.complex128)[..., 0] if tensor.dtype == torch.complex128 else array


def take_all(tensors: Sequence[torch.Tensor]) -> Arrays:
    """The tensors' values, after one graph with all that they need."""
    parts = [readable(tensor) for tensor in tensors]
    torch_xla.sync()
    del parts
    return [take(tensor) for tensor in tensors]


# The collectives.


def _by_group(
    xs: Arrays,
    groups: Groups,
    f: Callable[[Arrays], Arrays],
    outside: Callable[[np.ndarray], np.ndarray] = lambda x: x,
) -> Arrays:
    """f(the arrays of a group) -> those of its members; `outside` of what is in none."""
    results: Arrays = [outside(x) for x in xs]
    for group in groups or [range(len(xs))]:
        for rank, result in zip(group, f([xs[rank] for rank in group]), strict=True):
            results[rank] = result
    return results


def longest(groups: Groups, world: int) -> int:
    """The size of the longest group."""
    return max(map(len, groups or [range(world)]))


def _filled(blocks: Arrays, count: int) -> Arrays:
    """So many blocks, with zeros for those that are missing."""
    return [*blocks, *[np.zeros_like(blocks[0])] * (count - len(blocks))]


def all_gather(xs: Arrays, dim: int = 0, groups: Groups = None) -> Arrays:
    count = longest(groups, len(xs))

    def gather(members: Arrays) -> Arrays:
        blocks = [np.atleast_1d(x) for x in members]
        return [np.concatenate(_filled(blocks, count), dim)] * len(members)

    return _by_group(xs, groups, gather, lambda x: np.zeros_like(gather([x])[0]))


def _reduce(kind: str, xs: Arrays, scale: float, factor: float) -> np.ndarray:
    """scale * reduce(factor * x). Floats in 64 bits, rounded once; integers wrap."""
    dtype = xs[0].dtype
    if dtype == np.bool_:
        on_bools = {"sum": "or", "max": "or", "mul": "and", "min": "and"}
        kind = on_bools.get(kind, kind)
    if dtype == np.bool_ or np.issubdtype(dtype, np.integer):
        wide = dtype
    else:
        wide = np.dtype(np.complex128 if np.issubdtype(dtype, np.complexfloating) else np.float64)
    reducer: Any = {
        "mul": np.multiply,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }.get(kind, np.add)
    stack = np.stack([x.astype(wide) for x in xs])
    if factor != 1:
        stack = stack * wide.type(factor)
    result = np.asarray(reducer.reduce(stack, axis=0, dtype=wide))
    if kind == "average":
        members = wide.type(len(xs))
        if np.issubdtype(wide, np.integer):  # towards zero
            result = (result - np.fmod(result, members)) // members
        else:
            result = result / members
    if scale != 1:
        result = result * np.full(result.shape, scale, wide)
    return result.astype(dtype)


def all_reduce(
    xs: Arrays, reduce_type: str, scale: float = 1, groups: Groups = None, factor: float = 1
) -> Arrays:
    def reduce(members: Arrays) -> Arrays:
        return [_reduce(reduce_type, members, scale, factor)] * len(members)

    return _by_group(xs, groups, reduce, lambda x: reduce([x])[0])


def reduce_scatter(
    xs: Arrays,
    reduce_type: str,
    scale: float = 1,
    scatter_dim: int = 0,
    groups: Groups = None,
    factor: float = 1,
) -> Arrays:
    count = longest(groups, len(xs))

    def scatter(members: Arrays) -> Arrays:
        blocks = np.split(_reduce(reduce_type, members, scale, factor), count, scatter_dim)
        return blocks[: len(members)]

    return _by_group(xs, groups, scatter, lambda x: np.zeros_like(scatter([x])[0]))


def collective_permute(xs: Arrays, pairs: Sequence[Sequence[int]]) -> Arrays:
    sources = {target: source for source, target in pairs}
    zeros = np.zeros_like(xs[0])
    return [xs[sources[rank]] if rank in sources else zeros for rank in range(len(xs))]


def send_recv(xs: Arrays, pairs: Sequence[Sequence[int]], tag: int = 0) -> Arrays:
    return collective_permute(xs, pairs)


def all_to_all(
    xs: Arrays, split_dimension: int, concat_dimension: int, groups: Groups = None
) -> Arrays:
    count = longest(groups, len(xs))

    def exchange(members: Arrays) -> Arrays:
        blocks = [np.split(x, count, split_dimension) for x in members]
        columns = [list(column) for column in zip(*blocks, strict=True)][: len(members)]
        return [np.concatenate(_filled(column, count), concat_dimension) for column in columns]

    return _by_group(xs, groups, exchange, lambda x: np.zeros_like(exchange([x])[0]))


def _group_of(groups: Groups, rank: int, world: int) -> Sequence[int]:
    """The members of a rank's group; nobody if it is in none."""
    return next((group for group in groups or [range(world)] if rank in group), [])


def grouped(sizes: Sequence[int], groups: Groups) -> list[int]:
    """The same, and none for ranks that are in no group."""
    return [size if _group_of(groups, rank, len(sizes)) else 0 for rank, size in enumerate(sizes)]


def rows_of(op: str, sizes: Sequence[Any], groups: Groups, rank: int) -> int:
    """How many rows a rank passes to an uneven op."""
    if op == "uneven_all_gather":
        return int(sizes[rank])
    if op == "uneven_all_to_all":
        return sum(sizes[rank])
    return sum(sizes[member] for member in _group_of(groups, rank, len(sizes)))


def uneven_all_gather(xs: Arrays, sizes: Sequence[int], groups: Groups = None) -> Arrays:
    members = [_group_of(groups, rank, len(xs)) for rank in range(len(xs))]
    return [np.concatenate([xs[0][:0], *(xs[i] for i in group)]) for group in members]


def uneven_reduce_scatter(
    xs: Arrays,
    reduce_type: str,
    sizes: Sequence[int],
    scale: float = 1,
    groups: Groups = None,
    factor: float = 1,
) -> Arrays:
    results = [x[:0] for x in xs]
    for group in groups or [range(len(xs))]:
        whole = _reduce(reduce_type, [xs[rank] for rank in group], scale, factor)
        ends = np.cumsum([sizes[rank] for rank in group])
        for rank, end in zip(group, ends, strict=True):
            results[rank] = whole[end - sizes[rank] : end]
    return results


def uneven_all_to_all(xs: Arrays, sizes: Sequence[Sequence[int]], groups: Groups = None) -> Arrays:
    results = []
    for rank in range(len(xs)):
        group = _group_of(groups, rank, len(xs))
        parts = [xs[rank][:0]]
        for source in group:
            start = sum(sizes[source][i] for i in group[: list(group).index(rank)])
            parts.append(xs[source][start : start + sizes[source][rank]])
        results.append(np.concatenate(parts))
    return results


def collective_broadcast(xs: Arrays, root_ordinal: int = 0, groups: Groups = None) -> Arrays:
    groups = groups or [range(len(xs))]
    (position,) = (list(group).index(root_ordinal) for group in groups if root_ordinal in group)
    return _by_group(xs, groups, lambda members: [members[position]] * len(members))


# A call, what it means and how it is made.


@dataclasses.dataclass(frozen=True, repr=False)
class Case:
    op: str
    inputs: Arrays
    fields: dict[str, Any]

    def __repr__(self) -> str:
        x = self.inputs[0]
        fields = ", ".join(f"{name}={value}" for name, value in self.fields.items())
        return f"{self.op}({fields}) of {x.dtype}{list(x.shape)} on {len(self.inputs)} ranks"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """For hypothesis, which would print all operands, and leave no room for the error."""
        printer.text(repr(self))


def meaning(case: Case) -> Arrays:
    return globals()[case.op](case.inputs, **case.fields)


def issue(case: Case, tensor: torch.Tensor) -> torch.Tensor:
    """Make the call on this rank."""
    if case.op == "send_recv":
        channel = Channel(**case.fields)
        xm.send(tensor, channel)
        return xm.recv(torch.empty_like(tensor), channel)
    if case.op == "collective_broadcast":
        tensors = [tensor]
        xm.collective_broadcast(tensors, **case.fields)
        return tensors[0]
    operand = {
        "all_reduce": "inputs",
        "reduce_scatter": "input",
        "uneven_reduce_scatter": "input",
    }.get(case.op, "value")
    return getattr(xm, case.op)(**{operand: tensor}, **case.fields)


def issue_all(rank: int, cases: list[Case]) -> Arrays:
    """All calls in one graph; their results."""
    return take_all([issue(case, put(case.inputs[rank])) for case in cases])


def _short(array: np.ndarray) -> str:
    return f"{array.reshape(-1)[:8].tolist()}.. ({array.tobytes()[:32].hex()}..)"


def differences(
    case: Case, results: Arrays, bitwise: bool = False, tolerance: Arrays | None = None
) -> list[str]:
    """What is wrong with the results, by rank. `tolerance` is absolute, element by element."""
    found = []
    for rank, (got, wanted) in enumerate(zip(results, meaning(case), strict=True)):
        if got.dtype != wanted.dtype or got.shape != wanted.shape:
            problem = f"{got.dtype}{list(got.shape)}, not {wanted.dtype}{list(wanted.shape)}"
        elif tolerance is None:
            same = got.tobytes() == wanted.tobytes() if bitwise else np.array_equal(got, wanted)
            problem = "" if same else f"{_short(got)}, not {_short(wanted)}"
        else:
            wide = np.complex128 if np.iscomplexobj(got) else np.float64
            error = np.abs(got.astype(wide) - wanted.astype(wide))
            within = bool(np.all(error <= tolerance[rank]))
            problem = "" if within else f"off by {error.max()}, and {tolerance[rank].min()} may be"
        if problem:
            found.append(f"rank {rank} of {case}: {problem}")
    return found
