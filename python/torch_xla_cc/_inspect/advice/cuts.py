"""Collectives of which only a part is used."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..._hlo import flow
from ..._hlo.instruction import Array
from .study import LEAST_BYTES, Advice, Issued, Study
from .table import lowered

_Part = tuple[int | None, int]  # where it begins, None if that is computed; its size
_RANK = frozenset({"replica-id", "partition-id"})


def all_reduces(study: Study) -> Iterator[Advice]:
    """all_reduce ; one of as many blocks as there are ranks = reduce_scatter."""
    for one in study.of("all-reduce"):
        (array,) = one.collective.operands
        members = study.members(one)
        parts = _used(one.value)
        cut = [dim for dim, (_, size) in enumerate(parts) if size != array.dims[dim]]
        if not members or len(cut) != 1:
            continue
        (dim,) = cut
        start, size = parts[dim]
        if size * members != array.dims[dim]:
            continue
        if start is None and not _by_rank(one.value.users[0]):
            continue
        if start is not None and start % size:
            continue
        if study.target and not _scatters(study, one, dim):
            continue
        saved = array.bytes * (members - 1) // members
        if saved < LEAST_BYTES:
            continue
        block = "the block of its rank" if start is None else f"{start} to {start + size}"
        text = (
            f"all_reduce of {array}, of which only {block} in dimension {dim} is used, one of "
            f"{members} blocks. If each rank takes its own, reduce_scatter with scatter_dim={dim} "
            "gives it that alone"
        )
        same = "" if start is None else "; if all take this one, cut it out before the all_reduce"
        yield Advice("reduce-scatter", f"{text}{same}.", (one.line,), saved)


def all_gathers(study: Study) -> Iterator[Advice]:
    """all_gather ; slices that leave something = a smaller collective."""
    for one in study.of("all-gather"):
        (array,) = one.collective.operands
        members = study.members(one)
        parts = _used(one.value)
        if not members or not parts or len(parts) != len(array.dims):
            continue
        dim = one.collective.dimensions[0]
        whole = one.value.instruction.arrays[0]
        sizes = [n if at == dim else size for at, (n, (_, size)) in _both(array, parts)]
        kept = Array(array.dtype, tuple(sizes))
        start, size = parts[dim]
        position = 0 if start is None else start // array.dims[dim]
        in_one = start is not None and (start + size - 1) // array.dims[dim] == position
        if in_one:
            sent = Array(array.dtype, tuple(part_size for _, part_size in parts))
            wire = _broadcast(study, one, sent, position)
        else:
            wire = kept.bytes * (members - 1)
        saved = study.received(one) - wire
        if saved < LEAST_BYTES:
            continue
        used = Array(array.dtype, tuple(part_size for _, part_size in parts))
        text = f"all_gather of {array} in dimension {dim}, of whose {whole} only {used} is used, "
        if in_one:
            root = study.groups(one)[0][position]
            text += (
                f"all of it from rank {root}. Cut it out before, and send that alone: by "
                "collective_broadcast (torch.distributed: broadcast). If each rank takes another's "
                "part, use collective_permute; if each takes its own, nothing needs to be sent."
            )
        else:
            text += (
                "by all ranks alike, or by each another part. In the first case cut the operand "
                "before the all_gather; in the second, with parts of one size, use all_to_all."
            )
        yield Advice("gather-less", text, (one.line,), saved)


def _both(array: Array, parts: tuple[_Part, ...]) -> Iterator[tuple[int, tuple[int, _Part]]]:
    return enumerate(zip(array.dims, parts, strict=True))


def _used(value: flow.Value) -> tuple[_Part, ...]:
    """What its users take of it, in each dimension; () if that is all, or not known.

    Of several slices, what holds them all: they could be cut of that.
    """
    users = value.users
    dims = value.instruction.arrays[0].dims
    if value.is_result or not users:
        return ()
    if all(_is_plain_slice(user, len(dims)) for user in users):
        cuts = [user.instruction.cut for user in users]
        first = [min(cut[dim][0] for cut in cuts) for dim in range(len(dims))]
        last = [max(cut[dim][1] for cut in cuts) for dim in range(len(dims))]
        parts: tuple[_Part, ...] = tuple((a, b - a) for a, b in zip(first, last, strict=True))
    elif len(users) == 1 and users[0].opcode == "dynamic-slice":
        offsets = users[0].operands[1:]
        if users[0].operands[0] is not value or any(value in flow.sources(one) for one in offsets):
            return ()
        sizes = users[0].instruction.arrays[0].dims
        parts = tuple(
            (0 if size == dim else None, size) for size, dim in zip(sizes, dims, strict=True)
        )
    else:
        return ()
    return () if math.prod(size for _, size in parts) == math.prod(dims) else parts


def _is_plain_slice(value: flow.Value, rank: int) -> bool:
    cut = value.instruction.cut
    return value.opcode == "slice" and len(cut) == rank and all(step == 1 for *_, step in cut)


def _by_rank(cut: flow.Value) -> bool:
    return any(flow.depends_on(offset, _RANK) for offset in cut.operands[1:])


def _scatters(study: Study, one: Issued, dim: int) -> bool:
    """Whether a reduce_scatter instead is an instruction on the target."""
    (array,) = one.collective.operands
    found = lowered(
        "reduce_scatter",
        study.target,
        study.world,
        [array],
        study.groups(one),
        reduction=study.reduction(one),
        dim=dim,
    )
    return found is not None and found.native


def _broadcast(study: Study, one: Issued, sent: Array, position: int) -> int:
    """The bytes of a collective_broadcast of that; of all_reduce where it may have to be one."""
    groups = study.groups(one)
    found = lowered(
        "collective_broadcast", study.target, study.world, [sent], groups, root=groups[0][position]
    )
    if found is not None:
        return found.wire_bytes
    members = len(groups[0])
    return math.ceil(sent.bytes * 2 * (members - 1) / members)
