"""The MPI library that jaxlib loads: that of pod/memory, or one for the MPI that is there.

jaxlib wants one by the names of MPItrampoline, and no package has such a library of an MPI. So
mpi_wrapper.cc is compiled once, and stands in the user's cache. jaxlib loads what is named to it
when it is imported itself, so this comes before that.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import mmap
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from .errors import FAILED_PRECONDITION, Refused

CHOICE = "TORCH_XLA_CC_POD_COLLECTIVES"  # "gloo", "memory" or "mpi"
OF_MEMORY = Path(__file__).parents[2] / "libpod.so"  # pod/memory
_WRAPPER = Path(__file__).with_name("mpi_wrapper.cc")
_HEADERS = sorted(Path(__file__).parent.glob("*.h"))  # which it includes
_LOADED = "MPITRAMPOLINE_LIB"
_OTHERS = "MPITRAMPOLINE_"  # how it is loaded
COMPILER = "TORCH_XLA_CC_MPICXX"
LIBRARY = "TORCH_XLA_CC_MPI_LIBRARY"  # compiled before
_FLAGS = ("-std=c++17", "-O2", "-shared", "-fPIC", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX")
_NAME = re.compile(rb"\0(MPIX?ABI_\w+)(?=\0)")
_CONSTANT = re.compile(r"MPIX?ABI_[A-Z0-9_]+")
_TO_COMPILE_S = 120.0
_failed: Exception | None = None


def wanted() -> bool:
    """Whether ranks are to meet by MPI."""
    return os.environ.get(CHOICE) == "mpi"


def prepare(jaxlib: Path) -> None:
    """Of a process that is about to import jaxlib, which lies there."""
    global _failed
    if not wanted():
        if os.environ.get(CHOICE, "memory") == "memory":
            for name in [name for name in os.environ if name.startswith(_OTHERS)]:
                del os.environ[name]
            ctypes.CDLL(str(OF_MEMORY))  # jaxlib would end the process where it cannot
            os.environ[_LOADED] = str(OF_MEMORY)
        return
    try:
        given = os.environ.get(LIBRARY)
        found = Path(given) if given else _built(jaxlib / "libjax_common.so")
        _load(found)
        os.environ[_LOADED] = str(found)
    except Exception as error:  # said when somebody hears it
        _failed = error


def path() -> Path:
    """Where it is. Raises if it could not be compiled."""
    if _failed is not None:
        raise _failed
    return Path(os.environ[_LOADED])


def _load(library: Path) -> None:
    """jaxlib would end the process where it cannot."""
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        raise Refused(
            FAILED_PRECONDITION,
            f"{CHOICE}=mpi: {library} cannot be loaded: {error}. LD_LIBRARY_PATH has to have "
            f"the MPI that it was compiled for; {COMPILER} names another compiler",
        ) from error


def compiler() -> str:
    """What compiles it."""
    name = os.environ.get(COMPILER, "mpicxx")
    if (found := shutil.which(name)) is None:
        raise Refused(
            FAILED_PRECONDITION,
            f"{CHOICE}=mpi needs a compiler for MPI, and there is no {name!r}. "
            f"Install one (on Debian: libopenmpi-dev and g++), or name it in {COMPILER}",
        )
    return found


def _built(jaxlib: Path) -> Path:
    """The library, compiled if it has not been."""
    used = compiler()
    source = _WRAPPER.read_text()
    shown = _run([used, "-show"])
    headers = [header.read_text() for header in _HEADERS]
    made_of = "\n".join((source, *headers, used, shown, _state(jaxlib)))
    key = hashlib.sha256(made_of.encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torch_xla_cc"
    path = folder / f"mpi-{key}.so"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / "mpi.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise Refused(
            FAILED_PRECONDITION,
            f"{CHOICE}=mpi compiles a library into {folder}: {error}. XDG_CACHE_HOME names "
            "another folder",
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several ranks one compiles
        if not path.exists():
            _compile(used, source, jaxlib, path)
    finally:
        os.close(lock)
    _own(folder)
    _own(path)
    return path


def _own(path: Path) -> None:
    """What others may write is not loaded."""
    stat = path.stat()
    if stat.st_uid != os.geteuid() or stat.st_mode & 0o022:
        raise Refused(
            FAILED_PRECONDITION,
            f"{CHOICE}=mpi: {path} belongs to user {stat.st_uid}, mode {stat.st_mode & 0o777:o}; "
            "only this user may be able to write it. XDG_CACHE_HOME names another folder",
        )


def _compile(used: str, source: str, jaxlib: Path, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as making:
        whole = Path(making) / "mpi.cc"
        whole.write_text("\n".join((source, *_rest(source, _asked(jaxlib)), "")))
        made = Path(making) / "mpi.so"
        command = [used, *_FLAGS, f"-I{_WRAPPER.parent}", "-o", str(made), str(whole)]
        _run(command)
        if not made.exists():
            raise Refused(FAILED_PRECONDITION, f"{' '.join(command)} makes nothing")
        made.chmod(0o700)
        made.rename(path)


def _state(file: Path) -> str:
    stat = file.stat()
    return f"{file} {stat.st_size} {stat.st_mtime_ns}"


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_TO_COMPILE_S, check=False
    )
    if done.returncode:
        raise Refused(
            FAILED_PRECONDITION, f"{' '.join(command)} failed: {done.stderr or done.stdout}"
        )
    return done.stdout


def _asked(jaxlib: Path) -> set[str]:
    """The names that jaxlib looks for."""
    with jaxlib.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as code:
        return {name.decode() for name in _NAME.findall(code)}


def _rest(source: str, asked: Iterable[str]) -> Iterable[str]:
    """What defines those that the source does not."""
    there = set(re.findall(r"\bMPIX?ABI_\w+", source))
    yield 'extern "C" {'
    for name in sorted(set(asked) - there):
        kind, of = (
            ("extern Handle {}", "pod_mpi_nothing")
            if _CONSTANT.fullmatch(name)
            else ("int {}()", "pod_mpi_refuses")
        )
        yield f'{kind.format(name)} __attribute__((alias("{of}")));'
    yield "}"
