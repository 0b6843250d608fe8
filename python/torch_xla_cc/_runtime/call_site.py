"""Where in the user's code a call was made."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch_xla

_OURS = f"{Path(__file__).parents[1]}/"
_LIBRARIES = tuple(f"{Path(module.__file__ or '').parent}/" for module in (torch, torch_xla))


def is_users(file: str) -> bool:
    """Whether it is neither of this package nor of torch's."""
    return not file.startswith((_OURS, *_LIBRARIES))


def call_site() -> str:
    """The file and line of the innermost caller outside of this package, and of torch's if any."""
    frame = sys._getframe(1)
    found = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_OURS):
            library = file.startswith(_LIBRARIES)
            if not library or not found:
                found = f"{file}:{frame.f_lineno}"
            if not library:
                break
        frame = frame.f_back  # type: ignore[assignment]
    return found or "an unknown place"
