"""What was issued, and what each call was lowered to."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

from torch_xla_cc import _C


@dataclasses.dataclass(frozen=True)
class Call:
    """One collective that a rank issued."""

    rank: int
    op: str
    name: str  # with its attributes
    operands: tuple[str, ...]  # f32[4,8]
    results: tuple[str, ...]
    bytes: int  # of the operands
    groups: tuple[tuple[int, ...], ...]
    target: str
    rule: str  # native, fallback or host
    ways: tuple[str, ...]  # of a fallback, the outermost first: "all_gather as a sum"
    why: str  # of a fallback or the host, or of operands that travel one by one
    opcodes: tuple[str, ...]  # the HLO collectives that it became
    file: str
    line: int


_open: list[list[Call]] = []  # one for each block
_lock = threading.Lock()


@contextlib.contextmanager
def record() -> Iterator[list[Call]]:
    """Collect the collectives that all ranks of this process issue inside the block.

    The list is filled when the block ends.
    """
    calls: list[Call] = []
    deliver()
    with _lock:
        _open.append(calls)
        _C.set_recording(True)
    try:
        yield calls
    finally:
        deliver()
        with _lock:
            # Not remove(), for which lists with the same calls are the same.
            _open[:] = [one for one in _open if one is not calls]
            _C.set_recording(bool(_open))


def deliver() -> None:
    """Fill the lists of the open blocks up to now."""
    with _lock:
        new = [_call(raw) for raw in _C.take_records()]
        for calls in _open:
            calls.extend(new)


def _call(raw: dict[str, Any]) -> Call:
    return Call(
        rank=raw["rank"],
        op=raw["op"],
        name=raw["name"],
        operands=tuple(raw["operands"]),
        results=tuple(raw["results"]),
        bytes=raw["bytes"],
        groups=tuple(map(tuple, raw["groups"])),
        target=f"{raw['target']}/{raw['world_size']}",
        rule=raw["rule"],
        ways=tuple(raw["ways"]),
        why=raw["why"],
        opcodes=tuple(raw["opcodes"]),
        file=raw["file"],
        line=raw["line"],
    )
