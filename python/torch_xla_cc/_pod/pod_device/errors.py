"""Errors, as the plugin hands them to torch_xla: a code of absl and a message."""

from __future__ import annotations

INVALID_ARGUMENT, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION = 3, 4, 8, 9
UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 12, 13, 14

_CODES = {
    name: code
    for code, name in enumerate(
        (
            *("CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
            *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
            *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
            "UNAUTHENTICATED",
        ),
        1,
    )
}


class Refused(Exception):
    """What the pod itself does not do, or cannot."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def of_exception(error: BaseException) -> tuple[int, str]:
    """The code and the message; jaxlib's messages begin with the name of theirs."""
    if isinstance(error, Refused):
        return error.code, str(error)
    name, _, rest = str(error).partition(": ")
    if name in _CODES:
        return _CODES[name], rest
    return INTERNAL, f"{type(error).__name__}: {error}"
