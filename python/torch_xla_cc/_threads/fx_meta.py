"""What torch.fx notes of the node that is traced, of each thread its own.

In torch.fx.traceback it is two variables of the process. One thread that runs a graph by fx's
Interpreter exchanges them while another traces a backward pass, which then finds notes that are not
its own, or none: an AssertionError.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, MutableMapping
from typing import Any

from torch_xla_cc._runtime.patches import Changes
from torch_xla_cc._runtime.private import fx_traceback


class _Kept(threading.local):
    def __init__(self) -> None:
        self.preserve = False
        self.notes: dict[str, Any] = {}


class _Preserve:
    """fx.traceback.should_preserve_node_meta."""

    def __init__(self, kept: _Kept) -> None:
        self._kept = kept

    def __bool__(self) -> bool:
        return self._kept.preserve


class _Notes(MutableMapping[str, Any]):
    """fx.traceback.current_meta."""

    def __init__(self, kept: _Kept) -> None:
        self._kept = kept

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 (what torch notes)
        return self._kept.notes[name]

    def __setitem__(self, name: str, value: Any) -> None:  # noqa: ANN401
        self._kept.notes[name] = value

    def __delitem__(self, name: str) -> None:
        del self._kept.notes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept.notes)

    def __len__(self) -> int:
        return len(self._kept.notes)

    def copy(self) -> dict[str, Any]:
        return self._kept.notes.copy()

    def preserved(self, enable: bool) -> Iterator[None]:
        """What fx.traceback.preserve_node_meta does."""
        if not enable:
            yield
            return
        kept = self._kept
        before, notes = kept.preserve, kept.notes.copy()
        try:
            kept.preserve = True
            yield
        finally:
            kept.preserve, kept.notes = before, notes

    def of(self, node: Any, pass_name: str) -> Iterator[None]:  # noqa: ANN401 (fx's)
        """What fx.traceback.set_current_meta does."""
        kept = self._kept
        if not (kept.preserve and node.meta):
            yield
            return
        notes = kept.notes
        try:
            source = fx_traceback.NodeSource(node, pass_name, fx_traceback.NodeSourceAction.CREATE)
            kept.notes = {**node.meta, "from_node": [source]}
            yield
        finally:
            kept.notes = notes


# Of torch.fx.traceback, whose globals they see: some have imported those functions by name.


def _preserve_node_meta(enable: bool = True) -> Iterator[None]:
    yield from current_meta.preserved(enable)  # type: ignore[name-defined]  # noqa: F821


def _set_current_meta(node: Any, pass_name: str = "") -> Iterator[None]:  # noqa: ANN401
    yield from current_meta.of(node, pass_name)  # type: ignore[name-defined]  # noqa: F821


def keep_by_thread(made: Changes) -> None:
    """Have torch.fx.traceback keep it by thread."""
    kept = _Kept()
    made.put(fx_traceback, "current_meta", _Notes(kept))
    made.put(fx_traceback, "should_preserve_node_meta", _Preserve(kept))
    for name, ours in (
        ("preserve_node_meta", _preserve_node_meta),
        ("set_current_meta", _set_current_meta),
    ):
        # Behind contextlib's function, which makes a context of it.
        made.put(getattr(fx_traceback, name).__wrapped__, "__code__", ours.__code__)
