"""What each rank of a program may get: the program is played through, without time.

For each call of a rank an `Expected`: the ranks and calls that it meets, if it may be right, and
the errors that it may raise. Where more than one thing may happen first, both are allowed.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from world_calls import rows
from world_programs import ANYONE, KILLS, Action, Call, Program, actions_of

MISMATCH, TIMEOUT = "CollectiveMismatchError", "CollectiveTimeoutError"
ANY = frozenset({MISMATCH, TIMEOUT, "RanksDisagree"})
_IN_TWO = {
    "all_gather_object": ["sizes all_gather"],
    "gather_object": ["sizes all_gather"],
    "broadcast_object_list": ["sizes broadcast"],
    "scatter_object_list": ["sizes broadcast", "sizes scatter"],
}


@dataclasses.dataclass
class Expected:
    """`met`: (rank, event, call) of each member. `errors`: their types; `named`: ranks in them."""

    met: list[tuple[int, int, Call]] | None = None
    errors: frozenset[str] = frozenset()
    named: frozenset[int] = frozenset()


@dataclasses.dataclass
class _Broken:
    errors: frozenset[str]
    named: frozenset[int]
    unsure: bool = False  # when the others hear of it


def keys(call: Call) -> list[Any]:
    """What is compared, of each call that it becomes."""
    op = call.op.removeprefix("functional ")
    if op in ("barrier", "monitored_barrier"):
        return ["barrier"]
    root = call.root if op in ("broadcast", "reduce", "gather", "scatter", ANYONE) else None
    if op in _IN_TWO:
        root = None if op == "all_gather_object" else call.root
        sizes = [(size, None if size == "sizes all_gather" else root) for size in _IN_TWO[op]]
        return [*sizes, (op, root)]
    kind = call.kind if "reduce" in op else None
    if op in ("all_to_all", "all_to_all_single") and (call.splits or op == "all_to_all"):
        row = (op, "split", call.dtype)
        return [row]
    return [(op, call.dtype, call.shape, kind, root)]


def _fit(calls: list[Call]) -> bool:
    """Whether each receives as many rows as are sent to it."""
    n = range(len(calls))
    return all(rows(calls[i], i, j) == rows(calls[j], i, j) for i in n for j in n)


def _is_node(call: Call) -> bool:
    """Whether threads meet in their graphs for it, and not before."""
    meets = call.splits or call.op in ("all_to_all", "barrier", "monitored_barrier", ANYONE)
    return not call.is_message() and not meets


class _Rank:
    def __init__(self, program: Program, rank: int) -> None:
        self.rank = rank
        self.actions = actions_of(program, rank)
        self.at = 0  # which action
        self.call = 0  # of it
        self.unit = 0  # of that
        self.posted = False
        self.came = False
        self.objects: dict[tuple[int, int], list[int]] = {}  # by group and peer: their events
        self.found: list[list[Expected]] = []

    def done(self) -> bool:
        return self.at >= len(self.actions)


class Play:
    """The program's run. `need_short` are groups in which ranks wait for the time limit."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.threads = program.where == "threads"
        self.ranks = [_Rank(program, rank) for rank in range(program.world)]
        self.members = [sorted(members) for members in program.groups]
        self.units: dict[tuple[int, int], int] = {}  # by group and rank: calls that were met
        self.slots: dict[tuple[int, int], dict[int, tuple[Any, int, Call]]] = {}
        self.passed: dict[tuple[int, int], list[tuple[int, int, Call]]] = {}
        self.sent: dict[tuple[int, int, int, int, int], Call] = {}
        self.asked: dict[tuple[int, int, int, int, int], Call] = {}
        self.events_of_sends: dict[tuple[int, int, int, int, int], int] = {}
        self.broken: dict[int, _Broken] = {}
        self.need_short: set[int] = set()
        self.unsure = False  # from here on
        self.dead: set[int] = set()
        self._run()
        self._messages_may_hear()

    def expected(self, rank: int) -> list[list[Expected]]:
        """By action and call."""
        return self.ranks[rank].found

    def _messages_may_hear(self) -> None:
        """Not all ranks have a part in one: another may be far ahead when the group breaks.

        On threads it breaks as well with calls that are lost with those of another group.
        """
        lost = self.threads and self.unsure
        for rank in self.ranks:
            for action, calls in zip(rank.actions, rank.found, strict=False):
                for i, one in enumerate(calls):
                    broken = lost or action.groups[i] in self.broken
                    if action.calls[i].is_message() and broken:
                        met = one.met or self._as_planned(
                            action.groups[i], action.event, action.calls[i]
                        )
                        before = one.met is not None or not self._after_break(rank, action)
                        calls[i] = Expected(met, ANY) if before else one

    def _after_break(self, rank: _Rank, action: Action) -> bool:
        """Whether this rank has made a call before that told it."""
        return any(
            one.met is None
            for earlier, calls in zip(rank.actions, rank.found, strict=False)
            for i, one in enumerate(calls)
            if earlier.event < action.event and earlier.groups[i] == action.groups[0]
        )

    # How it goes.

    def _run(self) -> None:
        while not all(rank.done() for rank in self.ranks):
            posted = len(self.sent) + len(self.asked)
            moved = any([self._advance(rank) for rank in self.ranks])
            # Who has posted waits, and another may not.
            moved = moved or len(self.sent) + len(self.asked) > posted
            if not moved and not self._resolve():
                return

    def _advance(self, rank: _Rank) -> bool:
        moved = False
        while not rank.done() and self._step(rank):
            moved = True
        return moved

    def _step(self, rank: _Rank) -> bool:
        action = rank.actions[rank.at]
        if rank.call == 0 and rank.unit == 0 and not rank.came:
            rank.found.append([])
            if action.before in KILLS:
                self.dead.add(rank.rank)
            if action.before == "killed in it":
                self.unsure = True  # it may live on for some calls
            if action.before == "too late" and not self._others_gave_up(rank, action):
                rank.found.pop()
                return False
            rank.came = True
        if rank.call == len(action.calls):
            rank.at, rank.call, rank.unit, rank.came = rank.at + 1, 0, 0, False
            return True
        group, call = action.groups[rank.call], action.calls[rank.call]
        outcome = self._met(rank, action, group, call)
        if outcome is None:
            return False
        if isinstance(outcome, Expected):
            rank.found[-1].append(outcome)
            rank.call, rank.unit, rank.posted = rank.call + 1, 0, False
        return True

    def _others_gave_up(self, rank: _Rank, action: Action) -> bool:
        return action.groups[0] in self.broken or self.unsure

    def _met(self, rank: _Rank, action: Action, group: int, call: Call) -> Any:
        """What comes of the call now; None if it waits, True if another part of it follows."""
        number = self.units.get((group, rank.rank), 0)
        passed = self.passed.get((group, number))
        if passed is not None and rank.unit < len(keys(call)) and not call.is_message():
            # Done for all when the last one came, whatever they did next.
            self.units[group, rank.rank] = number + 1
            rank.unit += 1
            return Expected(passed) if rank.unit == len(keys(call)) else True
        if self.unsure:
            met = self._as_planned(group, action.event, call)
            return Expected(met, ANY)
        if call.is_message() and rank.posted:
            outcome = self._message(rank, action, group, call)
            if isinstance(outcome, Expected):
                return outcome
        if group in self.broken:
            broken = self.broken[group]
            theirs = self.slots.get((group, number), {}).values()
            own_key = repr(keys(call)[rank.unit]) if not call.is_message() else ""
            if not self.threads and any(repr(key) != own_key for key, _, _ in theirs):
                broken.errors |= {MISMATCH}  # what they had said before they gave up
            if not broken.unsure:
                return Expected(None, broken.errors, broken.named)
            return Expected(self._as_planned(group, action.event, call), ANY)
        if call.is_message():
            return self._message(rank, action, group, call)
        own = rank.rank
        slot = self.slots.setdefault((group, number), {})
        parts = keys(call)
        slot[own] = (parts[rank.unit], action.event, call)
        members = self.members[group]
        different = len({repr(key) for key, _, _ in slot.values()}) > 1
        if different and (self.threads or len(slot) == len(members)):
            self._break(group, MISMATCH, self._odd(slot))
            return True
        crossed = self._crossed(rank, group, call)
        if crossed is not None:
            for one in (group, crossed):
                self._break(one, MISMATCH, frozenset())
            return True
        if len(slot) < len(members):
            return None
        met = [(r, slot[r][1], slot[r][2]) for r in members]
        splits = any(theirs.splits for _, _, theirs in met)
        if rank.unit == 0 and splits and not _fit([theirs for _, _, theirs in met]):
            self._break(group, MISMATCH, frozenset())
            return True
        self.passed[group, number] = met
        return True

    def _crossed(self, rank: _Rank, group: int, call: Call) -> int | None:
        """Another group of the same ranks in which one waits: threads have one order of both."""
        if not (self.threads and _is_node(call)):
            return None
        for other in self.ranks:
            if other.done() or not other.came or other is rank:
                continue
            action = other.actions[other.at]
            if other.call == len(action.calls) or not _is_node(action.calls[other.call]):
                continue
            theirs = action.groups[other.call]
            place = (theirs, self.units.get((theirs, other.rank), 0))
            waits = place not in self.passed and other.rank in self.slots.get(place, {})
            same = theirs != group and self.members[theirs] == self.members[group]
            if waits and same and theirs not in self.broken:
                return theirs
        return None

    def _odd(self, slot: dict[int, tuple[Any, int, Call]]) -> frozenset[int]:
        fault = self.program.fault
        return frozenset({fault.rank} if fault.kind == "differ" and fault.rank in slot else ())

    def _as_planned(self, group: int, event: int, call: Call) -> Any:
        """Who is met if nothing is shifted."""
        if self.program.fault.kind not in ("differ", "late", "too late", *KILLS):
            return "anything"
        return [(rank, event, call) for rank in self.members[group]]

    def _break(
        self, group: int, error: str, named: frozenset[int], unsure: bool = False, also: Any = ()
    ) -> None:
        self.broken[group] = _Broken(frozenset({error, *also}), named, unsure)
        if unsure:  # some may wait for the time limit
            self.need_short.add(group)

    def _message(self, rank: _Rank, action: Action, group: int, call: Call) -> Any:
        members = self.members[group]
        own = members.index(rank.rank)
        to, source = (own + call.peer) % len(members), (own - call.peer) % len(members)
        # What has one tag comes in the order in which it goes.
        before = zip(action.groups[: rank.call], action.calls[: rank.call], strict=True)
        key = (group, call.tag, call.peer)
        nth = sum((g, c.tag, c.peer) == key and c.is_message() for g, c in before)
        tag = call.tag
        if call.op == "objects sent":  # without a tag: the n-th that is sent is the n-th received
            events = rank.objects.setdefault((group, call.peer), [])
            if action.event not in events:
                events.append(action.event)
            tag, nth = -1, events.index(action.event)
        sends, receives = (group, own, to, tag, nth), (group, source, own, tag, nth)
        self.asked[receives] = call
        theirs = self.sent.get(receives)
        # Of objects some receive first (world_calls.py).
        if not rank.posted and (call.op != "objects sent" or own < source or theirs is not None):
            self.sent[sends] = call
            self.events_of_sends[sends] = action.event
            rank.posted = True
        if theirs is not None and self._differ(theirs, call):
            self._break(group, MISMATCH, frozenset(), True)
            return Expected(None, ANY)
        taken = self.asked.get(sends)
        if taken is not None and self._differ(taken, call):
            self._break(group, MISMATCH, frozenset(), True)
            return True
        if theirs is None or (not self.threads and taken is None):
            return None
        met = [(r, action.event, call) for r in members]
        met[source] = (members[source], self.events_of_sends[receives], theirs)
        if taken is None:  # what nobody takes may be told later
            return Expected(met, ANY)
        return Expected(met)

    @staticmethod
    def _differ(a: Call, b: Call) -> bool:
        """Of objects sizes go before them."""
        objects = a.op == b.op == "objects sent"
        return (a.shape, a.dtype) != (b.shape, b.dtype) and not objects

    # When all wait.

    def _wait_for_each_other(self, waits: list[_Rank]) -> bool:
        """Whether ranks run graphs that will never meet: that shows, sooner or later."""
        groups = {
            rank.rank: rank.actions[rank.at].groups[rank.call]
            for rank in waits
            if _is_node(rank.actions[rank.at].calls[rank.call])
        }
        while groups:
            for_each_other = {
                rank: group
                for rank, group in groups.items()
                if any(groups.get(other, group) != group for other in self.members[group])
            }
            if for_each_other == groups:
                return True
            groups = for_each_other
        return False

    def _resolve(self) -> bool:
        """Have a wait end by its limit; False if nothing more happens."""
        waits = [rank for rank in self.ranks if not rank.done() and rank.came]
        late = [rank for rank in self.ranks if not rank.done() and not rank.came]
        if not waits:
            for rank in late:  # nobody waits for it
                rank.found.append([])
                rank.came = True
            return bool(late)
        groups: dict[int, list[_Rank]] = {}
        for rank in waits:
            groups.setdefault(rank.actions[rank.at].groups[rank.call], []).append(rank)
        with_dead = [g for g in groups if self.dead.intersection(self.members[g])]
        if with_dead:
            for group in with_dead:
                self._break(group, TIMEOUT, self.dead & {*self.members[group]}, True)
            return True
        if self.threads and self._wait_for_each_other(waits):
            self.unsure = True
            self.need_short.update(range(len(self.members)))
            return True
        short = [group for group in groups if group in self.program.short]
        group = (short or list(groups))[0]
        self.need_short.add(group)
        if len(short) > 1:
            self.unsure = True
            return True
        own = [rank.rank for rank in groups[group]]
        message = any(r.actions[r.at].calls[r.call].is_message() for r in groups[group])
        missing = frozenset() if message else frozenset(self.members[group]) - {*own}
        slot = self.slots.get((group, self.units.get((group, own[0]), 0)), {})
        different = len({repr(key) for key, _, _ in slot.values()}) > 1
        self._break(group, TIMEOUT, missing, message, [MISMATCH] if different else [])
        return True


@functools.lru_cache(maxsize=4)  # of all ranks on threads
def play(program: Program) -> Play:
    return Play(program)


def made(program: Program) -> Program | None:
    """The program with the time limits that it needs; None if that has no end."""
    for _ in range(4):
        needed = play(program).need_short
        if needed <= program.short:
            return program
        program = dataclasses.replace(program, short=program.short | needed)
    return None
