"""What the XLA:CPU of torch_xla makes of a module, without running it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from multiprocessing.connection import Pipe
from pathlib import Path

from .._hlo import proto, protobuf
from .._hlo.instruction import arrays
from .compiler import crash
from .errors import CompilerError, CompilerTimeout

_CHILD = Path(__file__).with_name("cpu_child.py")
_STDERR_TAIL = 16_000


class _Child:
    """A process that compiles one module after the other, for so many ranks on threads."""

    def __init__(self, ranks: int, flags: str) -> None:
        self.serves = (os.getpid(), ranks, flags)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by end)
        self._pipe, theirs = Pipe()
        with theirs:
            # It ends when this process does, and with it the pipe.
            self._process = subprocess.Popen(
                [sys.executable, str(_CHILD), str(theirs.fileno()), str(ranks)],
                env={**os.environ, "XLA_FLAGS": flags},
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=[theirs.fileno()],
            )

    def compile(self, parameters: str, module: bytes, timeout_s: float) -> bytes:
        try:
            self._pipe.send_bytes(parameters.encode())
            self._pipe.send_bytes(module)
            if not self._pipe.poll(timeout_s):
                raise CompilerTimeout(f"compiling for 'cpu' took more than {timeout_s} s")
            refused = self._pipe.recv_bytes().decode()
            if refused:
                raise CompilerError(f"compiling for 'cpu': {refused}")
            return self._pipe.recv_bytes()
        except (EOFError, ConnectionError):
            code = self._process.wait()
            size = os.fstat(self._errors.fileno()).st_size
            last = os.pread(self._errors.fileno(), _STDERR_TAIL, max(0, size - _STDERR_TAIL))
            raise crash("cpu", code, last.decode(errors="replace")) from None

    def end(self) -> None:
        if self.serves[0] == os.getpid():  # and not that of a process which forked this one
            self._process.kill()
            self._process.wait()
        self._pipe.close()
        self._errors.close()


_lock = threading.Lock()
_kept: _Child | None = None  # to start one takes seconds: it imports torch


def compile_on_cpu(module: bytes, ranks: int, timeout_s: float, flags: str = "") -> bytes:
    """Compile a serialized HloModuleProto for ranks on threads, in a child process.

    Returns the optimised module. `flags` are XLA_FLAGS, instead of the caller's: those may have a
    process dump, and read what it is not meant to. The child serves the next call too.
    """
    global _kept
    parameters = json.dumps(
        [
            (array.dtype, array.dims)
            for shape in protobuf.HloModuleProto.FromString(module).host_program_shape.parameters
            for array in arrays(proto.type_text(shape))
        ]
    )
    with _lock, contextlib.ExitStack() as on_failure:
        if _kept is not None and _kept.serves != (os.getpid(), ranks, flags):
            _kept.end()
            _kept = None
        if _kept is None:
            _kept = _Child(ranks, flags)
        # What XLA:CPU has refused may have broken its memory: the next call gets a new child.
        on_failure.callback(_forget)
        program = _kept.compile(parameters, module, timeout_s)
        on_failure.pop_all()
        return program


def _forget() -> None:
    global _kept
    if _kept is not None:
        _kept.end()
        _kept = None
