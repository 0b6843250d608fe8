"""Collectives of which only a part is used."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..._hlo import flow
from ..._hlo.instruction import Array
from .study import LEAST_BYTES, Advice, Issued, Study
from .table import Lowered, became, lowered

_Part = tuple[int | None, int]  # where it begins, None if that is computed; its size
_RANK = frozenset({"replica-id", "partition-id"})


def all_reduces(study: Study) -> Iterator[Advice]:
    """all_reduce ; one of as many blocks as there are ranks = reduce_scatter."""
    for one in study.of("all-reduce"):
        (array,) = one.collective.operands
        members = study.members(one)
        parts = _used(one.value)
        cut = [dim for dim, (_, size) in enumerate(parts) if array.dims[dim : dim + 1] != (size,)]
        if not members or len(cut) != 1 or one.value.instruction.arrays != (array,):
            continue
        (dim,) = cut
        start, size = parts[dim]
        if size * members != array.dims[dim]:
            continue
        if start is None and not _by_rank(one.value.users[0]):
            continue
        if start is not None and start % size:
            continue
        at_best = array.bytes * (members - 1) // members
        saved = _saved_by_scatter(study, one, dim) if at_best >= LEAST_BYTES else 0
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
        dim, *others = one.collective.dimensions or (-1,)
        if not members or not parts or len(parts) != len(array.dims):
            continue
        if others or not 0 <= dim < len(array.dims) or not array.dims[dim]:
            continue  # no all-gather that XLA would take
        whole = one.value.instruction.arrays[0]
        start, size = parts[dim]
        position = 0 if start is None else start // array.dims[dim]
        in_one = start is not None and (start + size - 1) // array.dims[dim] == position
        sent = tuple(part_size for _, part_size in parts)
        if in_one:
            wire = _broadcast(study, one, Array(array.dtype, sent), position)
        else:
            kept = (*sent[:dim], array.dims[dim], *sent[dim + 1 :])
            wire = _gather(study, one, Array(array.dtype, kept))
        saved = 0 if wire is None else study.received(one) - wire
        if saved < LEAST_BYTES:
            continue
        used = Array(array.dtype, sent)
        text = f"all_gather of {array} in dimension {dim}, of whose {whole} only {used} is used, "
        if in_one:
            groups = study.groups(one)
            root = f"rank {groups[0][position]}"
            if len(groups) > 1:
                root = f"the rank at place {position} of its group"
            text += (
                f"all of it from {root}. Cut it out before, and send that alone: by "
                "collective_broadcast (torch.distributed: broadcast). If each rank takes another's "
                "part, use collective_permute; if each takes its own, nothing needs to be sent."
            )
        else:
            text += (
                "by all ranks alike, or by each another part. In the first case cut the operand "
                "before the all_gather; in the second, with parts of one size, use all_to_all."
            )
        yield Advice("gather-less", text, (one.line,), saved)


def _used(value: flow.Value) -> tuple[_Part, ...]:
    """What its users take of it, in each dimension; () if that is all, or not known.

    Of several slices, what holds them all: they could be cut of that.
    """
    users = value.users
    arrays = value.instruction.arrays
    if value.is_result or not users or len(arrays) != 1:
        return ()
    dims = arrays[0].dims
    if all(_is_plain_slice(user, len(dims)) for user in users):
        cuts = [user.instruction.cut for user in users]
        first = [min(cut[dim][0] for cut in cuts) for dim in range(len(dims))]
        last = [max(cut[dim][1] for cut in cuts) for dim in range(len(dims))]
        parts: tuple[_Part, ...] = tuple((a, b - a) for a, b in zip(first, last, strict=True))
    elif len(users) == 1 and users[0].opcode == "dynamic-slice":
        offsets = users[0].operands[1:]
        if users[0].operands[0] is not value or any(value in flow.sources(one) for one in offsets):
            return ()
        sizes = tuple(size for one in users[0].instruction.arrays for size in one.dims)
        if len(sizes) != len(dims):
            return ()
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


def _saved_by_scatter(study: Study, one: Issued, dim: int) -> int:
    """What a reduce_scatter instead would save; 0 if it is not known what it would become."""
    found = lowered(
        "reduce_scatter",
        study.target,
        study.world,
        one.collective.operands,
        study.groups(one),
        reduction=study.reduction(one),
        dim=dim,
    )
    wire = _compiled(study, found)
    return 0 if wire is None else study.received(one) - wire


def _gather(study: Study, one: Issued, operand: Array) -> int | None:
    """What an all_gather of that would bring to a rank."""
    dim = one.collective.dimensions[0]
    groups = study.groups(one)
    if not study.target:
        return operand.bytes * (len(groups[0]) - 1)
    return _compiled(
        study, lowered("all_gather", study.target, study.world, [operand], groups, dim=dim)
    )


def _broadcast(study: Study, one: Issued, sent: Array, position: int) -> int | None:
    """What a collective_broadcast of that would; it may have to be an all-reduce."""
    groups = study.groups(one)
    members = len(groups[0])
    if not study.target:
        return math.ceil(sent.bytes * 2 * (members - 1) / members)
    root = groups[0][position]
    return _compiled(
        study,
        lowered("collective_broadcast", study.target, study.world, [sent], groups, root=root),
    )


def _compiled(study: Study, found: Lowered | None) -> int | None:
    made = became(found.module, study.target, study.world) if found else None
    return made[0] if made else None
