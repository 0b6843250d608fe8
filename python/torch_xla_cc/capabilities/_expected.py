"""What collectives mean, on the host: the data that probes on CPU send, and what they must get."""

from __future__ import annotations

import functools
import operator

import torch

from ._grid import REDUCTIONS, Cell, dims, groups, pairs, sizes

DTYPES = {
    "pred": torch.bool, "s8": torch.int8, "s16": torch.int16, "s32": torch.int32,
    "s64": torch.int64, "u8": torch.uint8, "u16": torch.uint16, "u32": torch.uint32,
    "u64": torch.uint64, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32,
    "f64": torch.float64, "c64": torch.complex64, "c128": torch.complex128,
    "f8e5m2": torch.float8_e5m2, "f8e4m3fn": torch.float8_e4m3fn,
}  # fmt: skip

_COMBINE = {
    "sum": operator.add, "product": operator.mul, "min": torch.minimum, "max": torch.maximum,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor,
}  # fmt: skip
_ON_BOOL = {"sum": "or", "product": "and", "min": "and", "max": "or"}


def _small(cell: Cell, rank: int, index: int, shape: list[int]) -> torch.Tensor:
    """1 and 2, whose sums and products every type holds; for bool 0 and 1."""
    generator = torch.Generator().manual_seed(100 * index + rank)
    values = torch.randint(1, 3, shape, generator=generator)
    return values - 1 if cell.type == "pred" else values


def _bytes(cell: Cell, rank: int, index: int, shape: list[int]) -> torch.Tensor:
    """Rows of any bits, NaN included, but for what torch_xla itself changes on the way."""
    generator = torch.Generator().manual_seed(100 * index + rank)
    wide = [*shape[:-1], shape[-1] * DTYPES[cell.type].itemsize]
    below = 2 if cell.type == "pred" else 256
    bits = torch.randint(0, below, wide, generator=generator, dtype=torch.uint8)
    if cell.type == "f16":  # a signalling NaN becomes a quiet one: keep to finite numbers
        bits[:, 1::2] &= 0xBF
    return bits


def operands(cell: Cell, rank: int, world: int) -> list[torch.Tensor]:
    """What a rank puts in."""
    shapes = list(enumerate(dims(world, cell.number)))
    if cell.op in REDUCTIONS:
        return [_small(cell, rank, i, shape).to(DTYPES[cell.type]) for i, shape in shapes]
    return [_bytes(cell, rank, i, shape).view(DTYPES[cell.type]) for i, shape in shapes]


def expected(cell: Cell, rank: int, world: int) -> list[torch.Tensor]:
    """What the rank must get: int64 from reductions, bytes otherwise."""
    make = _small if cell.op in REDUCTIONS else _bytes
    return [
        _one(cell, rank, world, [make(cell, peer, i, shape) for peer in range(world)])
        for i, shape in enumerate(dims(world, cell.number))
    ]


def same(cell: Cell, got: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether a result is what it must be."""
    if cell.op not in REDUCTIONS:
        return torch.equal(got.contiguous().view(torch.uint8), wanted)
    wanted = wanted.to(DTYPES[cell.type])  # products of many ranks wrap around
    plain = got.to(torch.complex128) if got.is_complex() else got.to(torch.float64)
    return torch.equal(plain, wanted.to(plain.dtype))


def _one(cell: Cell, rank: int, world: int, data: list[torch.Tensor]) -> torch.Tensor:
    own = data[rank]
    if cell.op == "parameter":
        return own
    if cell.form in ("chain", "ring", "ring:shuffled"):
        sources = [source for source, target in pairs(cell.form, world) if target == rank]
        return data[sources[0]] if sources else torch.zeros_like(own)
    lists = groups(cell.form, world) or [list(range(world))]
    longest = max(map(len, lists))
    members = next((group for group in lists if rank in group), [])
    if not members and cell.op in ("all_reduce", "collective_broadcast"):
        members = [rank]
    if cell.op == "collective_broadcast":
        return data[members[0]]
    if cell.op == "all_gather":
        return _padded([data[member] for member in members], longest, own)
    if cell.op == "uneven_all_to_all":
        matrix = sizes(cell.op, lists, world, own.shape[0])
        parts = [data[member].split(matrix[member])[rank] for member in members]
        rows = max(map(sum, zip(*matrix, strict=True)))
        came = torch.cat([*parts, own[:0]])
        return torch.cat([came, torch.zeros_like(own)[:1].repeat(rows - len(came), 1)])
    block = own.shape[0] // longest
    place = members.index(rank) if members else 0
    mine = slice(place * block, (place + 1) * block)
    if cell.op == "all_to_all":
        return _padded([data[member][mine] for member in members], longest, own[:block])
    if not members:
        return torch.zeros_like(own[:block])
    kind = _ON_BOOL.get(cell.kind, cell.kind) if cell.type == "pred" else cell.kind
    reduced = functools.reduce(_COMBINE[kind], [data[member] for member in members])
    return reduced if cell.op == "all_reduce" else reduced[mine]


def _padded(blocks: list[torch.Tensor], number: int, like: torch.Tensor) -> torch.Tensor:
    return torch.cat(blocks + [torch.zeros_like(like)] * (number - len(blocks)))
