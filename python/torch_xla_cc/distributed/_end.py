"""The end of the process while calls wait for peers.

A group waits for its calls before it is destroyed, for as long as its time limit says: a process
that ends because it has failed would not end, and nobody would learn that it has.
"""

from __future__ import annotations

import ctypes
import time

from torch_xla_cc import _C
from torch_xla_cc._runtime.private import c10d

_GRACE_S = 5.0


def leave_groups() -> None:
    """Wait a little for what is under way; then have no group destroyed while it is."""
    end = time.monotonic() + _GRACE_S
    while _C.at_work() and time.monotonic() < end:
        time.sleep(0.01)
    if _C.at_work():
        for group in c10d._world.pg_map:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))  # for good
