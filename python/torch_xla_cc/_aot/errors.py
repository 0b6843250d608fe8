"""What can go wrong when a compiler is called ahead of time."""

from __future__ import annotations


class CompilerError(Exception):
    """The compiler refused the program; the message is the compiler's own."""


class CompilerCrashed(CompilerError):
    """The compiler's process died. `exit_code` is negative for a signal, as in subprocess."""

    def __init__(self, message: str, exit_code: int, stderr: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.stderr = stderr


class CompilerMissing(CompilerError):
    """The library with the compiler, or one that reads its result, is not installed."""


class CompilerTimeout(CompilerError):
    """The compiler did not finish in time; its process was ended."""
