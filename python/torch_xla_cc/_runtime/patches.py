"""Other people's modules, changed together and put back together."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, ParamSpec, TypeVar

from torch_xla_cc._runtime import versions

_MISSING = object()
_T = TypeVar("_T")
_P = ParamSpec("_P")


def _words(where: Any, name: str = "") -> str:  # noqa: ANN401 (anything that has attributes)
    """What a person calls it: torch.nn.functional.layer_norm."""
    module = "" if inspect.ismodule(where) else f"{getattr(where, '__module__', None) or '?'}."
    own = getattr(where, "__qualname__", None) or getattr(where, "__name__", None)
    return f"{module}{own or type(where).__qualname__}{'.' if name else ''}{name}"


def _raw(where: Any, name: str) -> Any:  # noqa: ANN401
    """The attribute as it stands there, a classmethod as such; _MISSING if it is inherited."""
    of_type = inspect.getattr_static(type(where), name, None)
    if inspect.ismodule(where) or (
        not inspect.isclass(where) and inspect.isdatadescriptor(of_type)
    ):
        return getattr(where, name, _MISSING)
    return vars(where).get(name, _MISSING)


def _is(now: Any, ours: Any) -> bool:  # noqa: ANN401
    """Whether it is what we put there; numbers and texts may come back as a copy."""
    return now is ours or (type(now) in (int, str) and type(now) is type(ours) and now == ours)


class Changes:
    """What one adapter changes. Each change is undone in its turn, the last one first."""

    def __init__(self, owner: str, packages: tuple[str, ...], stack: contextlib.ExitStack) -> None:
        self._owner = owner
        self._packages = packages
        self._stack = stack

    def put(self, where: Any, name: str, ours: Any) -> Any:  # noqa: ANN401 (any attribute)
        """Replace an attribute that is there; what it was.

        If somebody else has put theirs over ours when it is put back, that stays, with a warning.
        """
        if not hasattr(where, name):
            self._refuse(f"{_words(where)} has no attribute {name!r}, which it replaces")
        theirs = getattr(where, name)
        for kind in (inspect.isclass, callable):
            if kind(theirs) != kind(ours if not isinstance(ours, classmethod) else ours.__func__):
                self._refuse(f"{_words(where, name)} is {theirs!r}: it replaces it by {ours!r}")
        raw = _raw(where, name)
        setattr(where, name, ours)
        self._stack.callback(self._put_back, where, name, ours, raw)
        return theirs

    def _put_back(self, where: Any, name: str, ours: Any, raw: Any) -> None:  # noqa: ANN401
        if not _is(now := _raw(where, name), ours):
            self._stays(_words(where, name), now)
        elif raw is _MISSING:
            delattr(where, name)
        else:
            setattr(where, name, raw)

    def wrap(self, where: Any, name: str, ours: Callable[..., Any]) -> None:  # noqa: ANN401
        """Replace a function by `ours`, which gets what it was as its first argument."""
        if not hasattr(where, name):
            self._refuse(f"{_words(where)} has no attribute {name!r}, which it replaces")
        theirs = getattr(where, name)

        @functools.wraps(theirs)
        def wrapper(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            return ours(theirs, *args, **options)

        self.put(where, name, wrapper)

    def add(self, where: Any, name: str, ours: Any) -> None:  # noqa: ANN401
        """Give it an attribute, if it has none of that name."""
        if not hasattr(where, name):
            setattr(where, name, ours)
            self._stack.callback(self._put_back, where, name, ours, _MISSING)

    def item(self, where: MutableMapping[Any, Any], key: Any, ours: Any) -> None:  # noqa: ANN401
        """Set an entry of a mapping."""
        before = where.get(key, _MISSING)
        where[key] = ours

        def put_back() -> None:
            if not _is(now := where.get(key, _MISSING), ours):
                self._stays(f"the entry {key!r}", now)
            elif before is _MISSING:
                del where[key]
            else:
                where[key] = before

        self._stack.callback(put_back)

    def enter(self, context: contextlib.AbstractContextManager[_T]) -> _T:
        """What holds until it is undone."""
        return self._stack.enter_context(context)

    def after(self, undo: Callable[_P, Any], *args: _P.args, **options: _P.kwargs) -> None:
        """Have this called when it is undone."""
        self._stack.callback(undo, *args, **options)

    def _refuse(self, why: str) -> None:
        raise versions.UnsupportedVersion(f"{self._owner}: {why}. {versions.of(self._packages)}")

    def _stays(self, what: str, now: object) -> None:
        text = "is gone" if now is _MISSING else f"has been replaced by {now!r}"
        warnings.warn(
            f"{self._owner}: {what} {text} since it was installed, and is left as it is. Undo in "
            "the other order: what was installed last, first",
            RuntimeWarning,
            stacklevel=2,
        )


@contextlib.contextmanager
def changes(owner: str, packages: tuple[str, ...] = ()) -> Iterator[Changes]:
    """Changes for a block. What an error cuts short is put back as well."""
    with contextlib.ExitStack() as stack:
        yield Changes(owner, packages, stack)


class Patches:
    """Changes that somebody installs: for good, or for blocks, of any thread.

    They are made when the first asks for them, all or none, and undone when the last has gone.

    Args:
      owner: who says so in errors, "adapters.fsdp".
      make: makes the changes. It gets a Changes, and the arguments of install().
      packages: those of versions.MADE_FOR that it changes. Another version is warned about.
      once: whether to refuse what is installed already, since it is of one thread.
    """

    def __init__(
        self,
        owner: str,
        make: Callable[..., None],
        packages: tuple[str, ...] = (),
        *,
        once: bool = False,
    ) -> None:
        self._owner = owner
        self._make = make
        self._packages = packages
        self._once = once
        self._thread: threading.Thread | None = None  # that it is of
        self._lock = threading.RLock()
        self._undo: contextlib.ExitStack | None = None
        self._users: set[object] = set()  # whoever uninstall() ends: install(), and blocks
        self._holders: set[object] = set()  # other adapters, which are built on this one

    def install(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 (those of make)
        """Make the changes, if they are not made."""
        with self._lock:
            self._begin(*args, **options)
            self._users.add(self)

    def uninstall(self) -> None:
        """Undo them, but where another adapter needs them. Nothing if they are not made."""
        with self._lock:
            thread = self._thread
            if thread and thread.is_alive() and thread is not threading.current_thread():
                raise RuntimeError(
                    f"{self._owner} is of one thread, and was installed on another, "
                    f"{thread.name!r}: uninstall() it there"
                )
            self._users.clear()
            self._end()

    @contextlib.contextmanager
    def installed(self, *args: Any, **options: Any) -> Iterator[None]:  # noqa: ANN401
        """install() for a block. It ends with the last block of all threads, or uninstall()."""
        with self._within(self._users, *args, **options):
            yield

    @contextlib.contextmanager
    def held(self, *args: Any, **options: Any) -> Iterator[None]:  # noqa: ANN401
        """The same for another adapter, which uninstall() of this one does not end."""
        with self._within(self._holders, *args, **options):
            yield

    @contextlib.contextmanager
    def _within(self, those: set[object], *args: Any, **options: Any) -> Iterator[None]:  # noqa: ANN401
        one = object()
        with self._lock:
            self._begin(*args, **options)
            those.add(one)
        try:
            yield
        finally:
            with self._lock:
                those.discard(one)
                self._end()

    def _begin(self, *args: Any, **options: Any) -> None:  # noqa: ANN401
        if self._undo is not None:
            if self._once:
                raise RuntimeError(
                    f"{self._owner} is installed already: uninstall() it first, or the "
                    "adapter that has installed it"
                )
            return
        versions.warn_of_others(self._owner, self._packages)
        with contextlib.ExitStack() as stack:  # which undoes what an error cuts short
            self._make(Changes(self._owner, self._packages, stack), *args, **options)
            self._undo = stack.pop_all()
            self._thread = threading.current_thread() if self._once else None

    def _end(self) -> None:
        if self._undo is not None and not self._users and not self._holders:
            undo, self._undo, self._thread = self._undo, None, None
            undo.close()
