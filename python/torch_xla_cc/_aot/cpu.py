"""What the XLA:CPU of torch_xla makes of a module, without running it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from multiprocessing.connection import Pipe
from pathlib import Path

from .._hlo import proto, protobuf
from .._hlo.instruction import arrays
from .compiler import crash
from .errors import CompilerCrashed, CompilerError, CompilerTimeout
from .overrides import Options, as_texts, refused

_CHILD = Path(__file__).with_name("cpu_child.py")
_STDERR_TAIL = 100_000  # what XLA says of a flag has all its flags behind it: 42 KB
_PLAIN = re.compile(r"[^\s'\"]*")
# Variables of the environment that make another compiler of it. Of others some change all the time:
# pytest has one with the name of the test.
_READ = ("XLA_", "PJRT_", "TF_", "TORCH", "PT_", "OMP_", "MKL_", "LD_", "PYTHON")


class _Child:
    """A process that compiles one module after the other, for so many ranks on threads."""

    def __init__(self, ranks: int, environment: dict[str, str]) -> None:
        self._serves = ranks, _of_compiler(environment)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by end)
        self._pipe, theirs = Pipe()
        with theirs:
            # It ends when this process does, and with it the pipe. Ctrl-C is for this process.
            self._process = subprocess.Popen(
                [sys.executable, str(_CHILD), str(theirs.fileno()), str(ranks)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def serves(self, ranks: int, environment: dict[str, str]) -> bool:
        return self._process.poll() is None and self._serves == (ranks, _of_compiler(environment))

    def compile(self, parameters: str, module: bytes, timeout_s: float) -> bytes:
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._process.kill()

        limit = threading.Timer(timeout_s, stop)  # of all: a child that hangs does not read either
        limit.daemon = True
        limit.start()
        try:
            self._pipe.send_bytes(parameters.encode())
            self._pipe.send_bytes(module)
            refused = self._pipe.recv_bytes().decode()
            if refused:
                raise CompilerError(f"compiling for 'cpu': {refused}")
            return self._pipe.recv_bytes()
        except (EOFError, OSError):
            code = self._process.wait()
            if late.is_set():
                message = f"compiling for 'cpu' took more than {timeout_s} s"
                raise CompilerTimeout(message) from None
            size = os.fstat(self._errors.fileno()).st_size
            last = os.pread(self._errors.fileno(), _STDERR_TAIL, max(0, size - _STDERR_TAIL))
            raise crash("cpu", code, last.decode(errors="replace")) from None
        finally:
            limit.cancel()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.let_go()

    def let_go(self) -> None:
        """Close what this process has of it."""
        self._pipe.close()
        self._errors.close()


def _of_compiler(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ)}


_lock = threading.Lock()
_kept: _Child | None = None  # to start one takes seconds: it imports torch


def _after_fork() -> None:
    """The child is that of the process which forked this one."""
    global _lock, _kept
    _lock = threading.Lock()
    if _kept is not None:
        _kept.let_go()
        _kept = None


os.register_at_fork(after_in_child=_after_fork)


def compile_on_cpu(
    module: bytes,
    ranks: int,
    timeout_s: float,
    flags: str = "",
    options: Options | None = None,
) -> bytes:
    """Compile a serialized HloModuleProto for ranks on threads, in a child process.

    Returns the optimised module. `flags` are XLA_FLAGS, instead of the caller's: those may have a
    process dump, and read what it is not meant to. `options` join them: torch_xla passes none on.
    The child serves the next call too, if it has the same.
    """
    global _kept
    parameters = json.dumps(
        [
            (array.dtype, array.dims)
            for shape in protobuf.HloModuleProto.FromString(module).host_program_shape.parameters
            for array in arrays(proto.type_text(shape))
        ]
    )
    texts = as_texts(options, "cpu")
    given = (_flag(name, text) for name, text in texts.items())
    environment = {**os.environ, "XLA_FLAGS": " ".join((flags, *given)).strip()}
    with _lock, contextlib.ExitStack() as on_failure:
        if _kept is not None and not _kept.serves(ranks, environment):
            _forget()
        if _kept is None:
            _kept = _Child(ranks, environment)
        # What XLA:CPU has refused may have broken its memory: the next call gets a new child.
        on_failure.callback(_forget)
        try:
            program = _kept.compile(parameters, module, timeout_s)
        except CompilerCrashed as error:
            raise refused(error.stderr, texts, "cpu") or error from None
        on_failure.pop_all()
        return program


def _flag(name: str, text: str) -> str:
    if not _PLAIN.fullmatch(text):
        raise ValueError(
            f"options: {name} = {text!r}, but for 'cpu' it must have no spaces and no quotes: it "
            "goes into XLA_FLAGS"
        )
    return f"--{name}={text.lower() if text in ('True', 'False') else text}"


def _forget() -> None:
    global _kept
    if _kept is not None:
        _kept.end()
        _kept = None
