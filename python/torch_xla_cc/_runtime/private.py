"""torch_xla's bindings: the only way into it, and private."""

from __future__ import annotations

from typing import Any

from torch_xla import _XLAC  # type: ignore[attr-defined]

XLAC: Any = _XLAC
