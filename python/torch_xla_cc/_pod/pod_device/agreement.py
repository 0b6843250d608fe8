"""Of rank 0: the collectives that ranks say they begin, compared one by one (meetings.py).

Ranks may cut what they do into programs where they like: what has to be the same is, for each
group, the row of its collectives, and for each two ranks that of the messages between them.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable

from .meetings import PROGRAMS, Calls, Group, Recent


class _Row:
    """The collectives of a group, from the first that not all of its ranks have begun.

    Or those by which one rank sends to another, of whichever groups.
    """

    def __init__(self, group: Group) -> None:
        self.begun = dict.fromkeys(group, 0)  # how many, by rank
        self._first = 0  # the number of the first that is kept
        self._kept: list[str] = []

    def add(self, rank: int, calls: tuple[str, ...]) -> tuple[int, str, str] | None:
        """A rank begins these; the number of the first that differs, what it is, what others have.

        Others than the rank have that which is kept.
        """
        start = self.begun[rank] - self._first
        known = self._kept[start : start + len(calls)]
        if list(calls[: len(known)]) != known:
            at = next(i for i, (a, b) in enumerate(zip(calls, known, strict=False)) if a != b)
            return self._first + start + at, calls[at], known[at]
        self._kept += calls[len(known) :]
        self.begun[rank] += len(calls)
        all_have = min(self.begun.values()) - self._first
        if all_have:
            del self._kept[:all_have]
            self._first += all_have
        return None


class _Question:
    """Of a rank that begins what it has not begun before: it waits for the answer."""

    def __init__(self, rank: int, calls: Calls, awaits: bool) -> None:
        self.rank, self.calls, self.awaits = rank, calls, awaits
        self.left: set[int] = set()  # who may have begun more than they have said


class Agreement:
    """Compares what ranks begin, and answers those that ask."""

    def __init__(
        self,
        ping: Callable[[int, int], None],
        agreed: Callable[[int], None],
        differ: Callable[[str], None],
        most: int = PROGRAMS,
    ) -> None:
        """What is called: to have a rank answer a question, after what it has begun; to let one
        that asked go on; to tell all what differs. Never with the lock held."""
        self._ping, self._agreed, self._differ = ping, agreed, differ
        self._lock = threading.Lock()
        self._recent = collections.defaultdict[int, Recent](lambda: Recent(most))  # by rank
        self._calls: dict[str, Calls] = {}  # of the programs in these
        self._held: collections.Counter[str] = collections.Counter()  # by how many ranks
        self._rows: dict[Group, _Row] = {}
        self._links: dict[Group, _Row] = {}  # by who sends and who receives
        self._questions: dict[int, _Question] = {}
        self._numbers = 0
        self._left: set[int] = set()

    def begins(self, rank: int, key: str, calls: Calls | None, asks: str = "") -> None:
        """A rank begins a program, of which it has said the collectives now or before.

        If it `asks`, it does not before it hears that it may: when others have said what they have
        begun ("asks"), or when all of the first group have come to its first ("awaits").
        """
        with self._lock:
            calls = self._said(rank, key, calls)
            wrong = self._added(rank, calls)
            number = self._numbers
            to_ping: set[int] = set()
            if asks and not wrong:
                question = self._questions[number] = _Question(rank, calls, asks == "awaits")
                self._numbers += 1
                if not question.awaits:
                    question.left = self._behind(rank, calls)
                    to_ping = question.left.copy()
        if wrong:
            self._differ(wrong)
            return
        for other in sorted(to_ping):
            self._ping(other, number)
        self._look()

    def _said(self, rank: int, key: str, calls: Calls | None) -> Calls:
        """The collectives of a program, now or before; of what no rank names any more they go."""
        if calls is not None:
            self._calls.setdefault(key, calls)
        found = self._calls[key]
        known, gone = self._recent[rank].use(key)
        self._held[key] += not known
        if gone is not None:
            self._held[gone] -= 1
            if not self._held[gone]:
                del self._held[gone], self._calls[gone]
        return found

    def answered(self, rank: int, number: int) -> None:
        """It has said all that it had begun when it was asked."""
        with self._lock:
            if number in self._questions:
                self._questions[number].left.discard(rank)
        self._look()

    def ended(self, rank: int) -> None:
        """A rank begins nothing any more."""
        with self._lock:
            self._left.add(rank)
            for question in self._questions.values():
                question.left.discard(rank)
            rows = (*map(self._alone, self._rows.values()), *map(self._unsent, self._links.items()))
            wrong = next(filter(None, rows), "")
        if wrong:
            self._differ(wrong)
        self._look()

    def behind(self, rank: int) -> list[int]:
        """Those that have begun less than this one of what both are in."""
        with self._lock:
            rows = [row.begun for row in self._rows.values() if rank in row.begun]
            rows += [row.begun for link, row in self._links.items() if rank in link]
            return sorted({r for begun in rows for r, n in begun.items() if n < begun[rank]})

    def _added(self, rank: int, calls: Calls) -> str:
        """What is wrong with what a rank begins, if anything."""
        for group, hashes in calls.groups:
            row = self._rows.setdefault(group, _Row(group))
            if rank not in row.begun:
                return f"rank {rank} runs a collective of group {list(group)}"
            differs = row.add(rank, hashes)
            if differs:
                ranks = ",".join(map(str, group))
                return self._difference(
                    f"the ranks of group [{ranks}] run programs of different collectives",
                    *(row, rank, *differs),
                )
            if wrong := self._alone(row):
                return wrong
        for link, hashes in calls.links:
            row = self._links.setdefault(link, _Row(link))
            if differs := row.add(rank, hashes):
                return self._difference(
                    "the collectives in which rank {} sends to rank {} differ".format(*link),
                    *(row, rank, *differs),
                )
            if wrong := self._unsent((link, row)):
                return wrong
        return ""

    def _alone(self, row: _Row) -> str:
        most = max(row.begun.values())
        gone = sorted(r for r in self._left if r in row.begun and row.begun[r] < most)
        return f"rank {gone[0]} has ended, and others run a collective with it" if gone else ""

    def _unsent(self, of_link: tuple[Group, _Row]) -> str:
        (sender, receiver), row = of_link
        if sender not in self._left or row.begun[sender] >= row.begun[receiver]:
            return ""
        return f"rank {sender} has ended, and rank {receiver} receives something of it"

    def _difference(
        self, what: str, row: _Row, rank: int, number: int, own: str, others: str
    ) -> str:
        said = {other: others for other, begun in row.begun.items() if begun > number}
        said[rank] = own
        words = {h: text for calls in self._calls.values() for h, text in calls.words.items()}
        each = "; ".join(
            f"rank {other} has {words.get(hashed, hashed)}"
            for other, hashed in sorted(said.items())
        )
        return f"{what}, the first of which is number {number + 1}: {each}"

    def _behind(self, rank: int, calls: Calls) -> set[int]:
        rows = [self._rows[group].begun for group, _ in calls.groups]
        rows += [self._links[link].begun for link, _ in calls.links]
        behind = {other for begun in rows for other, n in begun.items() if n < begun[rank]}
        return behind - self._left

    def _not_come(self, question: _Question) -> set[int]:
        """Those that have not begun the first collective of what one has begun."""
        group, hashes = question.calls.groups[0]
        begun = self._rows[group].begun
        start = begun[question.rank] - len(hashes)
        return {rank for rank, count in begun.items() if count <= start}

    def _look(self) -> None:
        """Let those go on whose questions are answered."""
        with self._lock:
            for question in self._questions.values():
                if question.awaits:
                    question.left = self._not_come(question)
            done = [n for n, question in self._questions.items() if not question.left]
            free = [self._questions.pop(n).rank for n in done]
        for rank in free:
            self._agreed(rank)
