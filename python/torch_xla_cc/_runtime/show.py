"""Values in messages."""

from __future__ import annotations

import sys

_LONGEST = 80


def show(value: object) -> str:
    """The value, short. Reads no tensor, which would run a graph, and raises nothing."""
    torch = sys.modules.get("torch")  # who reads files alone has not imported it
    if torch is not None and isinstance(value, torch.Tensor):
        return f"a tensor on {value.device}"
    try:
        text = repr(value)
    except Exception:
        return f"an object of type {type(value).__name__}"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
