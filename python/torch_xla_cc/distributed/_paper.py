"""A dry-run world: one rank of many that do not exist, to see what it would run."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist

from torch_xla_cc import _C
from torch_xla_cc._ops.call_modes import world_on_paper
from torch_xla_cc._runtime.patches import changes
from torch_xla_cc._runtime.private import c10d, c10d_bindings, rendezvous


class _Store(c10d_bindings.Store):  # type: ignore[misc]
    """Where groups are made: whoever is waited for has come."""

    def __init__(self, world_size: int) -> None:
        super().__init__()
        self._world_size = world_size
        self._values: dict[str, bytes] = {}

    def add(self, key: str, amount: int) -> int:
        """How many ranks have come to the place that torch.distributed counts here."""
        return self._world_size

    def set(self, key: str, value: bytes | str) -> None:
        """Of this rank."""
        self._values[key] = value.encode() if isinstance(value, str) else bytes(value)

    def get(self, key: str) -> bytes:
        """What this rank has set; no other sets anything."""
        if key not in self._values:
            raise ValueError(
                f"store.get: key = {key!r}, but it must be one that this rank has set: the dry-run "
                "world of paper_world has no other rank. Leave out what one would have set"
            )
        return self._values[key]

    def wait(self, keys: list[str], timeout: datetime.timedelta | None = None) -> None:
        """Nothing waits."""

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Nothing waits."""


def _broadcast_object_list(object_list: list[Any], *_: Any, **__: Any) -> None:  # noqa: ANN401
    """The source has given what this rank has."""


def _scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,  # noqa: ANN401 (a group, or None)
    group_src: int | None = None,
) -> None:
    """The source gets its own; what another scatters is not known, and nothing changes."""
    if group_src is None:
        group_src = c10d.get_group_rank(group or c10d._get_default_group(), src or 0)
    if scatter_object_input_list and dist.get_rank(group) == group_src:
        scatter_object_output_list[0] = scatter_object_input_list[group_src]


def _recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,  # noqa: ANN401 (a group, or None)
    device: object = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """What another sends is not known, and nothing changes."""
    if group_src is not None:
        return int(c10d.get_global_rank(group or c10d._get_default_group(), group_src))
    return src if src is not None else (dist.get_rank() + 1) % dist.get_world_size()


# These make room for what they are told of by another rank. The others are gathers.
_OBJECTS = {
    "broadcast_object_list": _broadcast_object_list,
    "scatter_object_list": _scatter_object_list,
    "recv_object_list": _recv_object_list,
}


@contextlib.contextmanager
def on_paper(rank: int, world_size: int) -> Iterator[None]:
    """Whatever init_process_group makes here is a dry-run world. One that is left ends with it."""
    if not isinstance(world_size, int) or world_size < 1:
        raise ValueError(f"paper_world: world_size = {world_size!r}, but it must be an int from 1")
    if not isinstance(rank, int) or not 0 <= rank < world_size:
        raise ValueError(
            f"paper_world: rank = {rank!r}, but it must be an int from 0 to {world_size - 1}"
        )
    if dist.is_initialized():
        raise RuntimeError("paper_world: torch.distributed has a world already. Destroy it first")

    def meet(*_: Any, **__: Any) -> Iterator[tuple[_Store, int, int]]:  # noqa: ANN401
        yield _Store(world_size), rank, world_size

    handlers = rendezvous._rendezvous_handlers
    with world_on_paper(), changes("torch_xla_cc.paper_world") as made:
        for scheme in handlers:
            made.item(handlers, scheme, meet)
        made.put(c10d, "ProcessGroupGloo", _C.PaperHost)  # of tensors of the host
        for name, ours in _OBJECTS.items():
            made.put(c10d, name, ours)
            made.put(dist, name, ours)
        try:
            yield
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


@contextlib.contextmanager
def paper_world(rank: int, world_size: int, backend: str = "xla_cc") -> Iterator[None]:
    """A dry-run world of torch.distributed: this process is one rank, the others do not exist.

    In it you can build models that take their part of the weights by rank and their groups from
    torch.distributed, and trace their steps by `torch_xla_cc.inspect` for a target of as many
    devices. Outside of `inspect` the result of a call is what it would be if every rank had passed
    what this one did; what only another rank would know stays as it was (docs/distributed.md,
    "Dry-run world").

    Args:
      rank: which of the ranks this process is.
      world_size: how many there would be.
      backend: as of init_process_group, such as "cpu:gloo,xla:xla_cc"; gloo is a dry run too.
    """
    with on_paper(rank, world_size):
        dist.init_process_group(backend)
        yield
