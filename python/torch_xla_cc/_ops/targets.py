"""Lowering for a device that is not here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from torch_xla_cc import _C
from torch_xla_cc._runtime.private import assume_constant_result


@assume_constant_result  # type: ignore[untyped-decorator]
def ranks_are_threads() -> bool:
    """Whether this thread lowers for ranks that are threads, each with a program of its own."""
    target, world_size = _C.current_target()
    return target.startswith("cpu") and world_size > 1


@contextlib.contextmanager
def lowering_for(target: str, world_size: int | None = None) -> Iterator[None]:
    """Lower what `target` would get, while torch_xla traces on the running device.

    Args:
      target: `"tpu:v5e:2x4"`, `"gpu:h100x8"`, `"cpu"`: kind, generation, topology.
      world_size: the number of ranks; the topology's number of devices if it names one.

    For compiling ahead of time and for inspection: such a graph is not meant to run here. Holds for
    the calling thread, and for the backward passes that it runs.
    """
    if not isinstance(target, str):
        raise TypeError(f"lowering_for: target is {type(target).__name__}, but it must be a string")
    if not target.isascii():
        raise ValueError(f"lowering_for: target = {target!a}, but it must be plain ASCII")
    if world_size is not None and (isinstance(world_size, bool) or not isinstance(world_size, int)):
        raise TypeError(
            f"lowering_for: world_size is {type(world_size).__name__}, but it must be an int"
        )
    if world_size is not None and not 0 < world_size < 2**31:
        raise ValueError(f"lowering_for: world_size = {world_size}, but it must be at least 1")
    before = _C.thread_target()
    _C.set_thread_target(target, world_size or 0)
    try:
        # Gradients are lowered for it too: autograd has a thread of its own for them otherwise.
        with torch.autograd.set_multithreading_enabled(False):
            yield
    finally:
        _C.set_thread_target(*(before or (None, 0)))
