"""Who of the world is there: each device process is connected with that of rank 0 while it lives.

They meet there before jaxlib's client joins them, which ends its process if one does not come. Then
the kernel closes the connection of a process that dies, whatever of, so the others hear of it at
once; jaxlib's service would tell after its heartbeat's timeout. Of a machine or network that has
gone the kernel tells after lines.SILENT_S. Rank 0's process stays until the others have said bye,
and then until their processes have ended, which is a matter of moments: jaxlib ends a process with
an error whose coordination service has gone.

Lines are said, a word and the rest: `meet ADDRESS`, of jaxlib's service, `lost WHAT`, `bye`. Who
has waited too long for the others says `late WHAT` to rank 0, which asks all `where` they are; they
answer `at WHAT`, and all of that is what is lost, unless one computes: then `wait`. Of the
collectives that it begins (agreement.py) a rank says `runs KEY CALLS`, or the same with `asks` or
`awaits` and goes on when it hears `agreed`; rank 0 has it say `pong N` to a `ping N`. A rank that
waits in one says `stalled`, and those that have not begun it hear `wanted`. One that is at its end,
and receives nothing any more, says `leaves` before it waits for others to take what it has sent
them; they hear `gone RANK`.
"""

from __future__ import annotations

import functools
import secrets
import socket
import threading
import time
from collections.abc import Callable

from . import lines
from .agreement import Agreement
from .asks import Asks, Lost
from .errors import DEADLINE_EXCEEDED, INVALID_ARGUMENT, Refused
from .meetings import Calls, calls_of

_TO_ANSWER_S = 2.0
_TO_LEAVE_S = 10.0  # of ranks that know that all is lost, and of processes that have said bye
_STRANGER_S = 10.0  # to say that it belongs here
_AGAIN_S = 0.1
COMPUTES = "computes"  # of where a rank is

Where = Callable[[], str]  # how far the programs of this rank are, in words
Wanted = Callable[[], None]  # others wait for what this rank has not begun
Gone = Callable[[int], None]  # which rank receives nothing any more


class Host:
    """Of rank 0: it hears of all, and tells all."""

    def __init__(
        self,
        address: tuple[str, int],
        size: int,
        token: str,
        lost: Lost,
        where: Where,
        wanted: Wanted,
        gone: Gone,
    ) -> None:
        self._lost, self._where, self._wanted, self._gone = lost, where, wanted, gone
        self._asks = Asks(lost)
        self._reached: set[str] = set()  # addresses of this machine
        self._agreement = Agreement(self._ping, self._agreed, self._tell)
        self._size = size
        self._token = token.encode()
        self._changed = threading.Condition()
        self._there: dict[int, lines.Speaker] = {}
        self._byes: set[int] = set()
        self._left: set[int] = set()
        self._all_lost = False
        self._answers: dict[int, str] | None = None  # of the ranks that were asked where they are
        self._wrong = ""
        self._listener = lines.listener(*address, backlog=size)
        threading.Thread(target=self._accept, daemon=True).start()

    def meet(self, service: Callable[[str | None], str], timeout_s: float) -> str:
        """Wait for all; tells them where jaxlib's service is, and returns that.

        That is asked with an address of this machine that others have reached, if there is any.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._wrong or len(self._there) + len(self._left) == self._size - 1,
                timeout_s,
            )
            missing = sorted({*range(1, self._size)} - {*self._there, *self._left})
            if missing and not self._wrong:
                self._wrong = _not_come(missing, self._size, timeout_s)
            code = DEADLINE_EXCEEDED if missing else INVALID_ARGUMENT
        if self._wrong:
            self._say_all("lost", self._wrong)
            raise Refused(code, self._wrong)
        with self._changed:
            reached = sorted(a for a in self._reached if not lines.is_loopback(a))
        found = service(reached[0] if reached else None)
        self._say_all("meet", found)
        return found

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # no descriptor is left
                time.sleep(_AGAIN_S)
                continue
            threading.Thread(target=self._attend, args=(connection,), daemon=True).start()

    def _attend(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as said:
            lines.probe(connection)
            connection.settimeout(_STRANGER_S)
            try:
                token, *numbers = lines.line(said).rstrip(b"\n").rsplit(b" ", 2)
                if not secrets.compare_digest(token, self._token):
                    return
                rank, size = map(int, numbers)
            except (TimeoutError, ValueError):
                return
            connection.settimeout(None)
            speaker = lines.Speaker(connection)
            with self._changed:
                if size != self._size or rank in self._there:
                    self._wrong = self._disagree(rank, size)
                    speaker.say(f"lost {self._wrong}")  # before this process ends
                    self._changed.notify_all()
                    return
                self._there[rank] = speaker
                self._reached.add(connection.getsockname()[0].removeprefix("::ffff:"))
                self._changed.notify_all()
            how = lines.hear(said, functools.partial(self._hear, rank))
            with self._changed:
                self._there.pop(rank)
        if how:
            what = f"the device process of rank {rank} {how}"
            with self._changed:
                self._wrong = self._wrong or what  # if they have not met yet
                self._changed.notify_all()
            self._tell(what)
        with self._changed:
            self._left.add(rank)
            self._changed.notify_all()
        if not how:
            self._agreement.ended(rank)

    def _hear(self, rank: int, word: str, what: str) -> None:
        if word in ("runs", "asks", "awaits"):
            key, _, calls = what.partition(" ")
            asks = "" if word == "runs" else word
            self._agreement.begins(rank, key, calls_of(calls) if calls else None, asks)
        elif word == "pong":
            self._agreement.answered(rank, int(what))
        elif word == "stalled":
            self._want(rank)
        elif word == "leaves":
            self._agreement.ended(rank)
            self._say_all("gone", str(rank))
            self._gone(rank)
        elif word == "bye":
            with self._changed:
                self._byes.add(rank)
                self._changed.notify_all()
        elif word == "lost":
            self._tell(what)
        elif word == "late":
            self.late(what)
        elif word == "at":
            with self._changed:
                if self._answers is not None:
                    self._answers[rank] = what
                    self._changed.notify_all()

    def _say(self, rank: int, line: str) -> None:
        """To one that is there. If one has died, all are told so."""
        with self._changed:
            connection = self._there.get(rank)
        if connection is not None:
            connection.say(line)

    def _ping(self, rank: int, number: int) -> None:
        if rank == 0:  # what it has begun it has said
            self._agreement.answered(0, number)
        else:
            self._say(rank, f"ping {number}")

    def _agreed(self, rank: int) -> None:
        if rank == 0:
            self._asks.agreed()
        else:
            self._say(rank, "agreed")

    def _want(self, rank: int) -> None:
        """One waits for those that have begun less."""
        for other in self._agreement.behind(rank):
            if other == 0:
                self._wanted()
            else:
                self._say(other, "wanted")

    def begin(self, key: str, calls: Calls | None, asks: str) -> None:
        """This rank begins these collectives; if it asks, when it may."""
        if asks:
            self._asks.wait(lambda: self._agreement.begins(0, key, calls, asks))
        else:
            self._agreement.begins(0, key, calls)
            self._asks.check()

    def stalled(self) -> None:
        """This rank waits for others in a collective."""
        self._want(0)

    def late(self, what: str) -> None:
        """Have all hear that one has waited too long, and where each rank is."""
        threading.Thread(target=self._find_out, args=(what,), daemon=True).start()

    def _find_out(self, what: str) -> None:
        with self._changed:
            if self._answers is not None:
                return  # of several that are late the first says it
            self._answers = {0: self._where()}
        self._say_all("where", "")
        with self._changed:
            self._changed.wait_for(lambda: len(self._answers or {}) == self._size, _TO_ANSWER_S)
            answers = dict(self._answers)
            self._answers = None
        if any(COMPUTES in said for said in answers.values()):
            self._say_all("wait", "")  # who asks will ask again
            return
        said = (f"rank {i} {answers.get(i, 'does not answer')}" for i in range(self._size))
        self._tell(f"{what}: {'; '.join(said)}")

    def _disagree(self, rank: int, size: int) -> str:
        if size != self._size:
            return (
                f"rank {rank} says that the pod has {size} ranks, and rank 0 that it has "
                f"{self._size}: give all the same WORLD_SIZE"
            )
        return (
            f"two processes say that they are rank {rank} of the pod: give each a RANK of its own"
        )

    def _say_all(self, word: str, what: str) -> None:
        with self._changed:
            others = list(self._there.values())
        for other in others:
            other.say(f"{word} {lines.one_line(what)}")

    def _tell(self, what: str) -> None:
        with self._changed:
            gone = sorted(self._left | self._byes)
            self._all_lost = True
            self._changed.notify_all()
        if gone:
            what = f"{what} (ranks that had ended before: {gone})"
        self._say_all("lost", what)
        self._asks.lose(what)

    def fail(self, what: str) -> None:
        """Something that ends all that they do together."""
        self._tell(lines.one_line(what))

    def leaves(self) -> None:
        """This rank begins nothing any more."""
        self._say_all("gone", "0")
        self._agreement.ended(0)

    def leave(self) -> None:
        """Wait until all others leave; not for long where nothing can be done any more."""

        def all_leave() -> bool:
            return len(self._byes | self._left) == self._size - 1

        with self._changed:
            self._changed.wait_for(lambda: all_leave() or self._all_lost)
            self._changed.wait_for(all_leave, _TO_LEAVE_S)

    def end(self) -> None:
        """Wait until the processes of those that left have ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._byes <= self._left, _TO_LEAVE_S)


def _not_come(missing: list[int], size: int, timeout_s: float) -> str:
    ranks = f"rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
    return (
        f"{ranks} of the pod's {size} did not come within {timeout_s:g} s. Look why they did not "
        "start; TORCH_XLA_CC_TIMEOUT_S is how long to wait"
    )


class Guest:
    """Of the other ranks."""

    def __init__(
        self,
        address: tuple[str, int],
        rank: int,
        size: int,
        token: str,
        timeout_s: float,
        lost: Lost,
        where: Where,
        wanted: Wanted,
        gone: Gone,
    ) -> None:
        self._where, self._wanted, self._gone = where, wanted, gone
        self._asks = Asks(lost)
        self._leaves = False
        self._heard = threading.Event()  # an answer to `late`, or that all is lost
        self._connection = lines.connected(address, timeout_s)
        lines.probe(self._connection)
        self._speaker = lines.Speaker(self._connection)
        self._said = self._connection.makefile("rb")
        self._speaker.say(f"{token} {rank} {size}")

    def meet(self, timeout_s: float) -> str:
        """Wait until all have come; where jaxlib's service is."""
        # Rank 0 gives up in this time, and may have begun a moment later than this one.
        self._connection.settimeout(2 * timeout_s)
        try:
            word, _, what = lines.line(self._said).decode().strip().partition(" ")
        except TimeoutError:
            word, what = "", f"rank 0 of the pod has not said within {timeout_s:g} s where to meet"
        self._connection.settimeout(None)
        if word != "meet":
            raise Refused(
                DEADLINE_EXCEEDED,
                what or "the device process of rank 0 has ended, or has another token of the pod",
            )
        threading.Thread(target=self._listen, daemon=True).start()
        return what

    def _listen(self) -> None:
        how = lines.hear(self._said, self._hear)
        if not self._leaves:
            self._lose(f"the device process of rank 0 {how}")

    def _hear(self, word: str, what: str) -> None:
        if word == "where":
            self._speaker.say(f"at {lines.one_line(self._where())}")
        elif word == "ping":  # what it has begun it has said
            self._speaker.say(f"pong {what}")
        elif word == "agreed":
            self._asks.agreed()
        elif word == "wanted":
            self._wanted()
        elif word == "gone":
            self._gone(int(what))
        elif word == "wait":
            self._heard.set()
        elif not self._leaves:
            self._lose(what)

    def _lose(self, what: str) -> None:
        self._heard.set()
        self._asks.lose(what)

    def begin(self, key: str, calls: Calls | None, asks: str) -> None:
        """This rank begins these collectives; if it asks, when it may."""
        line = f"{asks or 'runs'} {key} {calls.text() if calls else ''}"
        if asks:
            self._asks.wait(lambda: self._speaker.say(line))
        else:
            self._speaker.say(line)
            self._asks.check()

    def stalled(self) -> None:
        """This rank waits for others in a collective."""
        self._speaker.say("stalled")

    def fail(self, what: str) -> None:
        """Something that ends all that they do together: rank 0 tells it to all."""
        self._speaker.say(f"lost {lines.one_line(what)}")

    def late(self, what: str) -> None:
        """This rank has waited too long for the others. Rank 0 tells all, if it is there."""
        self._heard.clear()
        self._speaker.say(f"late {lines.one_line(what)}")
        if not self._heard.wait(2 * _TO_ANSWER_S):
            self._lose(f"{what}; rank 0 does not answer")

    def leaves(self) -> None:
        """This rank begins nothing any more."""
        self._speaker.say("leaves")

    def leave(self) -> None:
        """Say that this is no accident."""
        self._leaves = True
        self._speaker.say("bye")

    def end(self) -> None:
        """The kernel says when: it closes the connection with the process."""
