"""What torch.distributed keeps of calls that are coalesced."""

from __future__ import annotations

from torch_xla_cc._runtime.private import c10d


def forget(group: str) -> None:
    """End the coalesced calls of a group in which one has failed.

    An error leaves them open in torch.distributed: `batch_isend_irecv` would refuse to begin the
    next time, and `all_reduce` would be kept for an end that never comes, and return.
    """
    kept = c10d._world.pg_coalesce_state
    for one in [one for one in kept if one.group_name == group]:
        del kept[one]
