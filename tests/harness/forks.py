"""Starts processes that have torch and torch_xla imported already.

An import takes 3 to 5 s of a processor, and the tests need hundreds of processes. So a server of
multiprocessing, which has imported them and done nothing else, forks each. What it forks is what a
new interpreter would be after its imports: no thread runs in the server and no XLA runtime has
started, which each child asserts. Its environment is the one that is asked for.

    child = forks.start(function, *args, env={...}, output=file)
    done = forks.run_code("import torch_xla_cc; print(1)")  # as subprocess.run([python, "-c", ...])

Not the same as in an interpreter of its own: what happens in imports, the variables of the
environment that are read there (TORCH_XLA_CC_FALLBACK is read again), and the interpreter's own end
after its atexit functions. Tests of those start one (test_import.py, test_from_nccl.py).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import multiprocessing
import multiprocessing.reduction
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_MODULES = ["preloaded"]
# A thread of a library does not live on in a child.
_NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_context: Any = None


def server() -> Any:
    """The context of the server of this process, which runs. Not from several threads at first."""
    global _context
    if _context is None:
        _context = multiprocessing.get_context("forkserver")
        _context.set_forkserver_preload(_MODULES)
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        with _environment({**os.environ, **_NO_THREADS, "PYTHONPATH": path}):
            multiprocessing.forkserver.ensure_running()  # type: ignore[attr-defined]
    return _context


@contextlib.contextmanager
def _environment(env: Mapping[str, str]) -> Any:
    before = dict(os.environ)
    _set_environment(env)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(env: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)


def start(
    target: Callable[..., Any],
    *args: Any,
    env: Mapping[str, str] | None = None,
    output: IO[Any] | None = None,
    errors: IO[Any] | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> Any:
    """A process that calls `target(*args)`: of multiprocessing, to be joined or killed.

    Args:
      env: its whole environment; that of this process if not given.
      output: where what it prints goes, a file; nowhere if not given.
      errors: the same for stderr; `output` if not given.
    """
    with contextlib.ExitStack() as files:
        if output is None:
            output = files.enter_context(open(os.devnull, "w"))
        process = server().Process(
            target=_child,
            args=(
                _Descriptor(output.fileno()),
                _Descriptor((errors or output).fileno()),
                dict(os.environ if env is None else env),
                str(cwd or os.getcwd()),
                target,
                args,
            ),
        )
        process.start()
    return process


class _Descriptor:
    """A file's number, that is another one in the child."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return _received, (multiprocessing.reduction.DupFd(self.number),)


def _received(descriptor: Any) -> int:
    return int(descriptor.detach())


def run_code(code: str, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True)`."""
    return _completed(_run_code, code, ["-c", *args], options)


def run_script(
    path: str | os.PathLike[str], *args: str, **options: Any
) -> subprocess.CompletedProcess[str]:
    """The same of a file."""
    return _completed(run_as_main, str(path), [str(path), *map(str, args)], options)


def alone(test: Callable[[], None]) -> Callable[[], None]:
    """Have a test run in a process of its own, where PyTorch has started nothing.

    Its autograd counts devices at the first backward pass of a process, for good: after one without
    XLA devices, one with them fails.
    """

    def run() -> None:
        code = (
            f"import sys; sys.path[:0] = {sys.path!r}; import {test.__module__} as tests; "
            f"tests.{test.__name__}.test()"
        )
        done = run_code(code)
        assert done.returncode == 0, done.stdout + done.stderr

    run.test = test  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def txcc(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command of that name."""
    return run_code("import txcc; txcc.main()", *map(str, arguments), **options)


def _completed(
    main: Any, what: str, argv: Sequence[str], options: dict[str, Any]
) -> subprocess.CompletedProcess[str]:
    timeout = options.pop("timeout", 120.0)
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = start(main, what, list(argv), output=output, errors=errors, **options)
        try:
            process.join(timeout)
            late = process.exitcode is None
        finally:  # also of a test that is interrupted: this process would wait for its children
            process.kill()
            process.join()
        texts = [os.pread(file.fileno(), 1 << 26, 0).decode() for file in (output, errors)]
    if late:
        raise subprocess.TimeoutExpired(list(argv), timeout, *texts)
    return subprocess.CompletedProcess(list(argv), process.exitcode, *texts)


# Below: a child.


def _child(
    output: int, errors: int, env: dict[str, str], cwd: str, target: Any, args: Sequence[Any]
) -> None:
    # The kernel ends this process with the server, and that ends with the tests.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    assert len(os.listdir(f"/proc/{os.getppid()}/task")) == 1, "a thread runs in the server"
    import preloaded
    import torch_xla
    from torch_xla import _XLAC

    from torch_xla_cc import _C
    from torch_xla_cc._ops import fallback_policy

    assert not _XLAC._xla_runtime_is_initialized(), "an XLA runtime has started in the server"
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.close(output)
    if errors != output:
        os.close(errors)
    for name, value in preloaded.SET_BY_IMPORTS.items():
        env.setdefault(name, value)
    _set_environment(env)
    torch_xla._setup_xla_flags()  # adds to those that are asked for
    _C.set_fallback(fallback_policy.from_environment())  # as an import does
    if env.get("PJRT_DEVICE") == "POD":  # as the entry point does where the package is installed
        import txcc_pod

        txcc_pod.register()
    os.chdir(cwd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    target(*args)


def _run_code(code: str, argv: list[str]) -> None:
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    sys.path.insert(0, "")
    _as_a_program(lambda: exec(compile(code, "<string>", "exec"), vars(module)), argv)


def run_as_main(path: str, argv: list[str]) -> None:
    """The file, as `python path` runs it."""
    sys.path.insert(0, str(Path(path).parent))
    _as_a_program(lambda: runpy.run_path(path, run_name="__main__"), argv)


def _as_a_program(main: Callable[[], object], argv: list[str]) -> None:
    sys.argv = argv
    status: Any = 0
    try:
        main()
    except SystemExit as end:
        status = end.code
        if isinstance(status, str):
            print(status, file=sys.stderr)
            status = 1
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(status or 0))
