"""How calls of torch.distributed are carried out: in the graph, and in a dry-run world."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch_xla_cc import _C

_is_on_paper = False  # the world of torch.distributed: see distributed/_paper.py


@contextlib.contextmanager
def in_graph() -> Iterator[None]:
    """Leave the calls of this thread in the lazy graph until the step.

    Elsewhere ranks agree on what they run, or, with TORCH_XLA_CC_CALLS=each, each call runs what is
    pending: a rank may read what it got while others go on. Inside, and with `each`, all ranks of a
    group must read, and step, after the same calls.
    """
    with _C.call_mode(in_graph=True):
        yield


def on_paper() -> bool:
    """Whether it is. Then nothing runs that has a collective in it."""
    return _is_on_paper


@contextlib.contextmanager
def world_on_paper() -> Iterator[None]:
    """It is, for a block."""
    global _is_on_paper
    _is_on_paper = True
    try:
        yield
    finally:
        _is_on_paper = False


@contextlib.contextmanager
def one_buffer() -> Iterator[None]:
    """Have lists that are not views of one buffer, in order, refused: their parts are copied.

    The list given to all_gather, and that given to reduce_scatter, may be chunks of one tensor.
    Then the tensor itself is written, or read. Inside of this, anything else is a ValueError that
    names the tensor that is off, and where it should be.
    """
    with _C.call_mode(one_buffer=True):
        yield
