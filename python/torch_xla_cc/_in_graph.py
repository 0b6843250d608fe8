"""Where calls of torch.distributed stay in the lazy graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch_xla_cc import _C


@contextlib.contextmanager
def in_graph() -> Iterator[None]:
    """Leave the calls of this thread in the lazy graph until the step.

    Without it each call runs what is pending, as scripts expect: a rank may read what it got while
    others go on. Inside, all ranks of a group must read, and step, after the same calls.
    """
    before = _C.set_in_graph(True)
    try:
        yield
    finally:
        _C.set_in_graph(before)
