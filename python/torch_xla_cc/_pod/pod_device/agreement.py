"""Of rank 0: what ranks say of their meetings, compared (meetings.py)."""

from __future__ import annotations

import threading
from collections.abc import Callable

Place = tuple[tuple[int, ...], int]  # a group, and the number of a meeting in it


class Agreement:
    """Compares what the ranks of a group have at a place, and answers those that ask."""

    def __init__(
        self,
        ask: Callable[[int, Place], None],
        agreed: Callable[[int, Place], None],
        differ: Callable[[str], None],
    ) -> None:
        self._ask, self._agreed, self._differ = ask, agreed, differ
        self._lock = threading.Lock()
        self._said: dict[Place, dict[int, str]] = {}
        self._waits: dict[Place, dict[int, set[int]]] = {}  # by who asked: those that must answer
        self._ended: dict[tuple[int, ...], int] = {}  # places up to which all have said theirs

    def asked(self, rank: int, place: Place, what: str) -> None:
        """A rank has something there, and wants to know whether the others have it too."""
        group, number = place
        with self._lock:
            ended = number <= self._ended.get(group, -1)  # it was asked, and has answered
            others = set(group) - {rank, *self._said.get(place, {})}
            if not ended:
                self._waits.setdefault(place, {})[rank] = set(others)
        if ended:
            self._agreed(rank, place)
            return
        self.answered(rank, place, what)
        for other in sorted(others):
            self._ask(other, place)

    def answered(self, rank: int, place: Place, what: str | None) -> None:
        """A rank has this there, whether it was asked or not; None: it has not come so far."""
        group, number = place
        with self._lock:
            if number <= self._ended.get(group, -1):
                return  # said twice
            said = self._said.setdefault(place, {})
            if what is not None:
                said[rank] = what
            waits = self._waits.get(place, {})
            for left in waits.values():
                left.discard(rank)
            done = [asker for asker, left in waits.items() if not left]
            for asker in done:
                del waits[asker]
            if len(said) == len(group) and not waits:
                del self._said[place]
                self._waits.pop(place, None)
                self._ended[group] = number
            differ = _difference(place, said)
        if differ:
            self._differ(differ)
            return
        for asker in done:
            self._agreed(asker, place)


def _difference(place: Place, said: dict[int, str]) -> str:
    if len(set(said.values())) < 2:
        return ""
    words = (f"rank {rank} has {what.partition(' ')[2]}" for rank, what in sorted(said.items()))
    group = ",".join(map(str, place[0]))
    return f"the ranks of group [{group}] run programs of different collectives: {'; '.join(words)}"
