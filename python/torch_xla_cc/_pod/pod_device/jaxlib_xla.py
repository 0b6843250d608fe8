"""jaxlib's extension module. It is private, and its names are those of jaxlib 0.7.1."""

from __future__ import annotations

from typing import Any

from jaxlib import _jax  # type: ignore[attr-defined]

xla: Any = _jax
