"""Of rank 0: what ranks say of their meetings, compared (meetings.py)."""

from __future__ import annotations

import threading
from collections.abc import Callable

_KEPT = 4096  # programs

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
        self._said: dict[Place, dict[int, str]] = {}  # hashes
        self._words: dict[str, str] = {}  # of hashes: who has said one before says it alone
        # By who asked: those that must answer, and whether they must have come.
        self._waits: dict[Place, dict[int, tuple[set[int], bool]]] = {}
        self._ended: dict[tuple[int, ...], int] = {}  # places up to which all have said theirs

    def asked(self, rank: int, place: Place, what: str, awaits: bool) -> None:
        """A rank has something there, and wants to know whether the others have it too.

        Those that have not come so far are not waited for, unless it `awaits` all.
        """
        group, number = place
        with self._lock:
            ended = number <= self._ended.get(group, -1)  # it was asked, and has answered
            others = set(group) - {rank, *self._said.get(place, {})}
            if not ended:
                self._said.setdefault(place, {})[rank] = self._known(what)
                self._waits.setdefault(place, {})[rank] = set(others), awaits
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
                said[rank] = self._known(what)
            waits = self._waits.get(place, {})
            for left, awaits in waits.values():
                if what is not None or not awaits:
                    left.discard(rank)
            done = [asker for asker, (left, _) in waits.items() if not left]
            for asker in done:
                del waits[asker]
            if len(said) == len(group) and not waits:
                del self._said[place]
                self._waits.pop(place, None)
                self._ended[group] = number
            differ = self._difference(place, said)
        if differ:
            self._differ(differ)
            return
        for asker in done:
            self._agreed(asker, place)

    def _known(self, what: str) -> str:
        """Its hash."""
        key, _, words = what.partition(" ")
        if words:
            self._words[key] = words
            if len(self._words) > _KEPT:
                del self._words[next(iter(self._words))]
        return key

    def _difference(self, place: Place, said: dict[int, str]) -> str:
        if len(set(said.values())) < 2:
            return ""
        group = ",".join(map(str, place[0]))
        differ = f"the ranks of group [{group}] run programs of different collectives"
        lists = {rank: self._words.get(key, "").split("; ") for rank, key in sorted(said.items())}
        longest = max(map(len, lists.values()))
        for i in range(longest):
            at = {rank: words[i] if i < len(words) else "none" for rank, words in lists.items()}
            if len(set(at.values())) > 1:
                both = "; ".join(f"rank {rank} has {what}" for rank, what in at.items())
                return f"{differ}, the first of which is number {i + 1}: {both}"
        return f"{differ}, of which the first {longest} are the same"
