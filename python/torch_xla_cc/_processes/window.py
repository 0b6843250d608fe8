"""How many calls ranks have pending before all of them run what they have.

A rank that reads alone, again and again, as one does that prints what a loop of validation finds,
has others run ahead of it. What is pending is looked through at each of its reads, and it holds
memory, so ranks then stop at one call of theirs and step together, as if the script had said so
there; until then each call that is read runs by itself. Windows that follow are short.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch_xla_cc import _C

_MOST: int = _C.noted_calls.MOST
_READS = 8  # alone, after which they do: a step of training has fewer
_SHORT = 8  # calls
_STILL_READS = 3  # alone, in a short window


class Window:
    """The calls since all ranks last ran all that they had. It is the same on all ranks."""

    def __init__(self) -> None:
        self._reads = 0
        self._enough = _READS
        self.end = _MOST  # calls

    def is_cut(self) -> bool:
        """Whether it is to end before a step of the script."""
        return self.end < _MOST

    def read_alone(self, made: Iterable[int]) -> None:
        """Some ranks have read what others did not; the ranks have `made` so many calls."""
        self._reads += 1
        if self._reads >= self._enough and not self.is_cut():
            self._cut(max(made))

    def ended(self) -> None:
        """All ranks have run all that they had."""
        again = self.is_cut() and self._reads >= _STILL_READS
        self._reads, self.end = 0, _MOST
        if again:
            self._cut(_SHORT)

    def _cut(self, end: int) -> None:
        self._reads, self.end = 0, min(_MOST, end)
        _C.noted_calls.set_wanted(True)  # each call is to look whether it is behind the end

    def let_go(self) -> None:
        """All ranks do not come to its end together; that may be so with the next, too."""
        if self.is_cut():
            self._enough *= 2
        self._reads, self.end = 0, _MOST
