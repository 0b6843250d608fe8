"""Compiled programs, kept in the user's cache: where ranks run one program, one of them compiles.

The next launch, also that of torchrun after a rank was lost, compiles nothing that one before it
did. It is machine code, so only what this user alone may write is loaded.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CHOICE = "TORCH_XLA_CC_POD_CACHE"  # a folder; "0": none
_MOST_BYTES = 1 << 30  # in the folder, when a launch begins
_MOST_WAITS_S = 900.0  # while another rank compiles
_LOOKS_S = 0.02
_DIGEST = 32


def compiled(
    key: bytes,
    compile_it: Callable[[], Any],
    serialize: Callable[[Any], bytes],
    load: Callable[[bytes], Any],
) -> Any:
    """What the key stands for: as it is kept, or compiled, and kept."""
    folder = _folder(os.environ.get(CHOICE))
    if folder is None:
        return compile_it()
    name = hashlib.sha256(_machine() + key).hexdigest()
    path = folder / name
    found = _kept(path, load)
    if found is not None:
        return found
    with _turn(folder, int(name[:7], 16)):
        found = _kept(path, load)  # by a rank that was first
        if found is not None:
            return found
        made = compile_it()
        # A folder that is full, or what cannot be serialized, costs the next one its time alone.
        with contextlib.suppress(Exception):
            _keep(path, serialize(made))
        return made


@functools.lru_cache(maxsize=1)
def _folder(choice: str | None) -> Path | None:
    """None where it is not wanted, or somebody else may write there."""
    if choice == "0":
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(choice) if choice else cache / "torch_xla_cc" / "pod"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_own(folder):
            return None
        _trim(folder)
    except OSError:
        return None
    return folder


def _is_own(path: Path) -> bool:
    stat = path.stat()
    return stat.st_uid == os.geteuid() and not stat.st_mode & 0o022


@functools.lru_cache(maxsize=1)
def _machine() -> bytes:
    """What machine code is for, and what compiles it."""
    import jaxlib.version

    processor = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        processor = "\n".join(
            one for one in lines if one.startswith(("flags", "model", "Features"))
        )
    flags = os.environ.get("XLA_FLAGS", "")
    return repr((jaxlib.version.__version__, processor, flags)).encode()


def _kept(path: Path, load: Callable[[bytes], Any]) -> Any:
    """None if it is not there, or not whole."""
    try:
        content = path.read_bytes() if _is_own(path) else b""
        if hashlib.sha256(content[_DIGEST:]).digest() != content[:_DIGEST]:
            return None
        os.utime(path)
        return load(content[_DIGEST:])
    except Exception:  # (of jaxlib: it is compiled then)
        return None


def _keep(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix="making-", delete=False) as file:
        try:
            file.write(hashlib.sha256(content).digest() + content)
            file.close()
            Path(file.name).rename(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _turn(folder: Path, place: int) -> Iterator[None]:
    """Of the ranks that want the same, one after the other; nobody waits for good."""
    end = time.monotonic() + _MOST_WAITS_S
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        yield
        return
    try:
        while time.monotonic() < end:
            try:  # a byte of the file: it ends with the process that holds it
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
            except BlockingIOError:
                time.sleep(_LOOKS_S)
            except OSError:  # a file system without locks
                break
            else:
                break
        yield
    finally:
        os.close(lock)


def _trim(folder: Path) -> None:
    """What was not used for longest goes, until the rest is small enough."""
    found = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another rank does the same
            stat = path.stat()
            found.append((stat.st_mtime, stat.st_size, path))
    left = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if left <= _MOST_BYTES:
            break
        with contextlib.suppress(OSError):
            path.unlink()
        left -= size
