"""torch.distributed's state, of each rank its own where ranks are threads of one process."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from torch_xla_cc._runtime.patches import changes
from torch_xla_cc._runtime.private import (
    BackendPlugin,
    backend_plugins,
    c10d,
    c10d_bindings,
    rendezvous,
)


class _World(threading.local):
    """What c10d._World holds; __init__ runs once in each thread."""

    def __init__(self) -> None:
        self.default_pg: Any = None
        self.pg_map: dict[Any, Any] = {}
        self.pg_names: dict[Any, str] = {}
        self.pg_group_ranks: dict[Any, dict[int, int]] = {}
        self.pg_backend_config: dict[Any, str] = {}
        self.group_count = 0
        self.tags_to_pg: dict[str, list[Any]] = {}
        self.pg_to_tag: dict[Any, str] = {}
        self.pg_coalesce_state: dict[Any, list[Any]] = {}

    # Reads the attributes above.
    pg_config_info = c10d._World.pg_config_info


class _Rank(threading.local):
    """Which rank of a launch this thread is."""

    number: int | None = None


_this = _Rank()


def this_rank() -> int | None:
    """The rank of this thread in the running launch; None outside of one."""
    return _this.number


def _environment(store: c10d_bindings.Store, world_size: int, before: Callable[..., Any]) -> Any:  # noqa: ANN401
    """env:// and xla:// for ranks that share one environment: rank and store are the launch's."""
    rounds: dict[int, int] = {}

    def handler(url: str, *args: Any, **kwargs: Any) -> Iterator[tuple[Any, int, int]]:  # noqa: ANN401
        rank = this_rank()
        if rank is None:
            yield from before(url, *args, **kwargs)
            return
        # A group that was destroyed and made again meets under another name.
        rounds[rank] = rounds.get(rank, 0) + 1
        yield c10d_bindings.PrefixStore(f"init{rounds[rank]}", store), rank, world_size

    return handler


def _forget_hooks(excepthook: Any, init_method: Any) -> None:  # noqa: ANN401 (a function; a text)
    """Undo what torch changes for the process whenever a group is made, and leaves."""
    if getattr(sys.excepthook, "__module__", None) == c10d.__name__:
        sys.excepthook = excepthook
    c10d._default_pg_init_method = init_method


_load: Callable[[], object] | None = None


def on_load(load: Callable[[], object]) -> None:
    """What registers our backend, which nobody needs before the first group."""
    global _load
    _load = load


def _xla(options: Any, *_: Any) -> Any:  # noqa: ANN401 (types of c10d)
    """torch_xla's backend in a launch: ours. Its own ends the process where ranks are threads."""
    assert _load is not None
    _load()
    return backend_plugins["XLA_CC"].creator_fn(options)


@contextlib.contextmanager
def thread_worlds(world_size: int) -> Iterator[None]:
    """Around a launch of ranks that are threads."""
    handlers = rendezvous._rendezvous_handlers
    store = c10d_bindings.HashStore()
    with changes("torch_xla_cc.launch") as made:
        made.put(c10d, "_world", _World())
        for scheme in ("env", "xla"):  # xla://, which is torch_xla's, means the same here
            made.item(handlers, scheme, _environment(store, world_size, handlers[scheme]))
        made.item(backend_plugins, "XLA", BackendPlugin(_xla, True))
        made.after(_forget_hooks, sys.excepthook, c10d._default_pg_init_method)
        made.after(c10d_bindings._set_thread_isolation_mode, False)
        c10d_bindings._set_thread_isolation_mode(True)
        yield


@contextlib.contextmanager
def as_rank(rank: int) -> Iterator[None]:
    """Around what a rank's thread runs."""
    _this.number = rank
    groups = c10d._world  # those of this launch; when it has ended without this rank, others'
    try:
        # On a thread of autograd's a backward pass would be of no rank.
        with torch.autograd.set_multithreading_enabled(False):
            yield
    finally:
        if c10d._world is groups and dist.is_initialized():
            dist.destroy_process_group()
        _this.number = None
