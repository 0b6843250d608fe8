"""What torch.distributed 2.9 keeps for other backends, for groups of ours; others go on to it."""

from __future__ import annotations

import collections
import hashlib
import weakref
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from torch_xla_cc._processes import waits
from torch_xla_cc._runtime.private import c10d

# As they are in PyTorch: install() replaces them in its modules.
_split_group = c10d.split_group
_monitored_barrier = c10d.monitored_barrier

# Of each world of this process: how often a name was made for these ranks.
_named: weakref.WeakKeyDictionary[dist.ProcessGroup, collections.Counter[str]] = (
    weakref.WeakKeyDictionary()
)


def _hash_ranks_to_str(ranks: list[int]) -> str:
    """The name of a group that its members alone make, the same on all of them.

    PyTorch's has in it how many groups this rank is in, and members of one that are not in the same
    number of others wait for each other until the timeout.
    """
    counts = _named.setdefault(c10d._get_default_group(), collections.Counter())
    members = "_".join(map(str, ranks))
    counts[members] += 1
    unique = f"{members}:{counts[members]}".encode()
    return f"members_{hashlib.sha1(unique, usedforsecurity=False).hexdigest()}"


def _ours(group: Any) -> Any:  # noqa: ANN401 (types of c10d)
    """The backend of a group for XLA devices, if that is ours."""
    try:
        backend = group._get_backend(torch.device("xla"))
    except RuntimeError:
        return None
    return backend if backend.name() == "xla_cc" else None


def _wrong(argument: str, value: object, required: str, remedy: str) -> ValueError:
    return ValueError(f"split_group: {argument} = {value}, but it must be {required}. {remedy}")


def split_group(
    parent_pg: dist.ProcessGroup | None = None,
    split_ranks: list[list[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,  # noqa: ANN401 (as in PyTorch)
    group_desc: str | None = None,
) -> dist.ProcessGroup | None:
    """torch.distributed.split_group: the part that this rank is in, of a group cut into some.

    `split_ranks` are lists of ranks of the parent; a rank in none of them gets None. PyTorch asks
    for a device of "cuda" there, so that XLA devices could not come to it.
    """
    parent = c10d._get_default_group() if parent_pg is None else parent_pg
    made: dist.ProcessGroup | None
    if _ours(parent) is None:
        made = _split_group(parent_pg, split_ranks, timeout, pg_options, group_desc)
        return made
    lists = split_ranks or []
    ranks = [rank for part in lists for rank in part]
    if not lists or not all(lists):
        raise _wrong("split_ranks", split_ranks, "lists of ranks", "Name the ranks of each part")
    if len(ranks) != len(set(ranks)) or not all(0 <= rank < parent.size() for rank in ranks):
        required = f"ranks of the parent, 0 to {parent.size() - 1}, each in one list"
        raise _wrong("split_ranks", split_ranks, required, "Parts may not overlap")
    own = next((part for part in lists if parent.rank() in part), None)
    if own is None:
        return None
    members = [dist.get_global_rank(parent, rank) for rank in sorted(own)]
    backend = c10d.Backend(dist.get_backend_config(parent))
    made, _ = c10d._new_process_group_helper(
        len(members),
        members.index(dist.get_rank()),
        members,
        backend,
        c10d._world.pg_map[c10d._get_default_group()][1],
        _hash_ranks_to_str(members),
        backend_options=pg_options,
        timeout=c10d._get_default_timeout(backend) if timeout is None else timeout,
        group_desc=group_desc,
    )
    c10d._world.pg_group_ranks[made] = {rank: index for index, rank in enumerate(members)}
    return made


def monitored_barrier(
    group: dist.ProcessGroup | None = None,
    timeout: timedelta | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """torch.distributed.monitored_barrier: a barrier that names all who do not come.

    It does so on every rank, and whether `wait_all_ranks` or not. PyTorch knows it for gloo alone.
    """
    if c10d._rank_not_in_group(group):
        return
    backend = _ours(group or c10d._get_default_group())
    if backend is None:
        _monitored_barrier(group, timeout, wait_all_ranks)
        return
    limit = {} if timeout is None else {"timeout": timeout}
    with waits.waiting():
        backend.monitored_barrier(**limit, wait_all_ranks=wait_all_ranks)


# By install(): in which module, which name, by what.
REPLACED: list[tuple[Any, str, Any]] = [
    (module, function.__name__, function)
    for module in (dist, c10d)
    for function in (split_group, monitored_barrier)
]
REPLACED.append((c10d, "_hash_ranks_to_str", _hash_ranks_to_str))
