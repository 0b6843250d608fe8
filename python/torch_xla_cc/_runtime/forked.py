"""Whether this process was forked from one in which torch_xla's runtime had started.

Its threads and locks are not there any more.
"""

from __future__ import annotations

import os

from torch_xla_cc._runtime.private import XLAC

_with_runtime = False


def _note() -> None:
    global _with_runtime
    _with_runtime = XLAC._xla_runtime_is_initialized()


os.register_at_fork(after_in_child=_note)


def with_runtime() -> bool:
    """Whether it was."""
    return _with_runtime
