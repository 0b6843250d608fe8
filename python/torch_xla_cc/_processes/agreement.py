"""What ranks that have to run the same programs run of what they have pending, and when.

Calls of torch.distributed stay in the graph, and a rank may want to run it where others do not: it
reads alone, or steps where they are still tracing. So before anything with a call in it runs, all
ranks say in a round (rounds.py) where they are and what they would run:

1. All would run, and it is the same: it is one program.
2. Else the calls that somebody needs, and all have made, run as one program of these alone, and
   the graph stays: their results become known, who reads computes the rest by itself. So it does
   with all that it has, where it would step and others would not, or otherwise.
3. Ranks have made different calls, or one cannot go on: from then on each call runs when it is
   made, as with TORCH_XLA_CC_CALLS=each.
"""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import NamedTuple

import torch

from torch_xla_cc import _C
from torch_xla_cc._processes import evaluate
from torch_xla_cc._processes.pending import Known, Living
from torch_xla_cc._processes.rounds import Poke, RanksGone, Rounds
from torch_xla_cc._runtime import chains

_calls = _C.noted_calls
_MOST = 1000  # pending calls
_WORDS = 17  # of 60 calls each
_BITS = 60
# After how many ms without being served all give up, if a rank that is behind waits for a peer
# beside the graph; and if it does nothing, which may be such a wait, or a slow disk.
_WAITS_MS = 1000
_IDLE_MS = 10000
_AGAIN_S = 0.05


class Kind(IntEnum):
    """Why a rank is in a round."""

    STEPS = 1  # it would run all that it has
    READS = 2
    PASSES = 3  # it is about to make its next call
    IDLE = 4  # it does nothing with tensors
    WAITS = 5  # the same, for a peer, beside the graph


class Said(NamedTuple):
    """What a rank says in a round."""

    kind: int
    made: int  # calls
    chain: int  # which they are
    graph: int  # what it would run as a whole: a hash
    others: int  # tensors that are not in that
    waited: int  # ms, if it would run something
    needs: frozenset[int]  # calls


def _number(name: bytes) -> int:
    return int.from_bytes(name[:7], "little") ^ int.from_bytes(name[7:14], "little")


def _packed(said: Said) -> list[int]:
    words = [0] * _WORDS
    for call in said.needs:
        words[call // _BITS] |= 1 << call % _BITS
    return [said.kind, said.made, said.chain, said.graph, said.others, said.waited, *words]


def _unpacked(numbers: list[int]) -> Said:
    kind, made, chain, graph, others, waited, *words = numbers
    needs = (i * _BITS + bit for i, word in enumerate(words) for bit in range(_BITS) if word >> bit & 1)
    return Said(kind, made, chain, graph, others, waited, frozenset(needs))


class _Outcome(NamedTuple):
    """What came of a round, for this rank."""

    same: bool = False  # all run what they have, which is the same
    served: bool = False  # the calls that it needs have run
    together: bool = False  # all would step, after the same calls


class Agreement:
    """Of the ranks of a world."""

    def __init__(self, rounds: Rounds, device: int, run_live: Callable[[], None]) -> None:
        self.rounds = rounds
        self._device = device  # the number of this process's
        self._run_live = run_live  # runs all that is pending
        self._turn = threading.RLock()  # of the thread that is in a round
        self._known = Known()
        self._since: float | None = None  # when it first wanted what it wants
        self._poke: Poke | None = None

    def step(self, run: Callable[[], None]) -> None:
        """Run all that is pending, by `run` if it is the same on all ranks."""
        with self._turn:
            while _calls.count():
                living = Living(self._device)
                needs = self._known.needed(living.pending)
                came = self._round(self._said(Kind.STEPS, needs, living))
                if came.same:
                    break
                if came.served:
                    living.become(self._known.evaluate(living.pending))
                    if not came.together:
                        return  # others have the calls in their graphs, and so may this one
                    break
            self._known.forget()
            run()

    def read(self, tensors: list[torch.Tensor]) -> list[torch.Tensor] | None:
        """What to read in their place; None: themselves."""
        with self._turn:
            while _calls.count():
                needs = self._known.needed(tensors)
                if not needs:
                    return self._known.evaluate(tensors)
                living = Living(self._device)
                if self._round(self._said(Kind.READS, needs, living)).same:
                    self._known.forget()
                    self._run_live()
        return None

    def settle(self) -> None:
        """Have all calls run that were made: what follows runs by itself, and behind them."""
        with self._turn:
            while needs := self._known.unknown(_calls.count()):
                said = self._said(Kind.READS, set(needs), Living(self._device))
                if self._round(said).same:
                    self._known.forget()
                    self._run_live()

    def alone(
        self,
        operands: list[torch.Tensor],
        attach: Callable[[list[torch.Tensor]], list[torch.Tensor]],
    ) -> list[torch.Tensor]:
        """The results of a call that is not in the program of all ranks, once it runs."""
        with self._turn:
            self.settle()
            operands = self._known.evaluate(operands)
            with chains.beginning(self._device, chains.first(self._device)):
                results = attach(operands)
            evaluate.sync(results)
        return results

    def answer(self, kind: Kind) -> None:
        """Be in the rounds in which others wait for this rank to have made its calls."""
        with self._turn:
            while (poke := self._poke) is not None and poke.round == self.rounds.number:
                if kind == Kind.PASSES and _calls.count() < poke.end:
                    return
                self._round(self._said(kind, set(), None))
                if kind != Kind.PASSES:
                    return  # it may have something to do again
            _calls.set_wanted(False)

    def before_call(self) -> None:
        """Answer those that wait; and what is pending is not to grow without end."""
        self.answer(Kind.PASSES)
        if _calls.count() >= _MOST:
            self.step(self._run_live)

    def poked(self, poke: Poke) -> bool:
        """Another waits in a round. Whether this rank is to come to it."""
        if poke.round < self.rounds.number:
            return False
        before = self._poke
        if before is not None and before.round == poke.round:
            poke = Poke(poke.round, min(poke.end, before.end), poke.reads or before.reads)
        self._poke = poke
        _calls.set_wanted(True)
        return True

    def try_answer(self, kind: Kind) -> None:
        """As `answer`, if no other thread is in a round."""
        if self._turn.acquire(blocking=False):
            try:
                self.answer(kind)
            finally:
                self._turn.release()

    def _said(self, kind: Kind, needs: set[int], living: Living | None) -> Said:
        made = _calls.count()
        graph = _number(evaluate.hashed(living.pending)) if living else 0
        others = living.others if living else 0
        wants = kind <= Kind.READS
        self._since = (self._since or time.monotonic()) if wants else self._since
        waited = int(1000 * (time.monotonic() - (self._since or 0.0))) if wants else 0
        chain = _calls.chain(made) >> 1
        return Said(kind, made, chain, graph, others, waited, frozenset(needs))

    def _round(self, own: Said) -> _Outcome:
        wants = own.kind <= Kind.READS
        poke = Poke(self.rounds.number, _end(own), own.kind == Kind.READS) if wants else None
        try:
            all_said = [_unpacked(numbers) for numbers in self.rounds.meet(_packed(own), poke)]
            place = {(said.made, said.chain) for said in all_said}
            wanting = [said for said in all_said if said.kind <= Kind.READS]
            alike = len(place) == 1 and len(wanting) == len(all_said)
            if alike and len({(said.graph, said.others) for said in all_said}) == 1:
                self._since = None
                return _Outcome(same=True)
            return self._differ(own, all_said, wanting)
        except RanksGone:
            _calls.give_up()
            raise

    def _differ(self, own: Said, all_said: list[Said], wanting: list[Said]) -> _Outcome:
        """Not all ranks run what they have, or not the same."""
        least = min(said.made for said in all_said)
        served = [said for said in wanting if _end(said) <= least]
        calls = sorted(frozenset().union(*(said.needs for said in served)))
        name = self._known.shared(calls)
        told = self.rounds.meet([_calls.chain(least) >> 1, _number(name)], None)
        if len({chain for chain, _ in told}) > 1:
            self._give_up("they do not make the same calls")
            return _Outcome()
        if len({program for _, program in told}) == 1:
            self._known.run_shared(calls)
        else:
            for call in self._known.unknown(calls[-1] + 1):
                self._known.run_alone(call, self._device)
        if not served and _is_stuck(all_said, wanting):
            self._give_up("one does nothing while another waits for a call of it")
            return _Outcome()
        if not served:
            time.sleep(_AGAIN_S)
        is_served = all_said[self.rounds.rank] in served
        if is_served:
            self._since = None
        together = len({(said.kind, said.made) for said in all_said}) == 1
        return _Outcome(served=is_served, together=together and own.kind == Kind.STEPS)

    def _give_up(self, why: str) -> None:
        for call in self._known.unknown(_calls.count()):
            _calls.compare(call)
            self._known.run_alone(call, self._device)
        living = Living(self._device)
        living.become(self._known.evaluate(living.pending))
        self._known.forget()
        _calls.give_up()
        warnings.warn(
            "torch_xla_cc: the ranks' calls of torch.distributed cannot be parts of one program: "
            f"{why}. From now on each call runs when it is made. TORCH_XLA_CC_CALLS=each does so "
            "from the start, without this warning",
            RuntimeWarning,
            stacklevel=2,
        )


def _is_stuck(all_said: list[Said], wanting: list[Said]) -> bool:
    """Whether a rank that is behind will not come to make its calls before others go on."""
    waited = max((said.waited for said in wanting), default=0)
    behind = [said for said in all_said if said.made < min(map(_end, wanting), default=0)]
    if any(said.kind == Kind.WAITS for said in behind):
        return waited > _WAITS_MS
    return waited > _IDLE_MS and any(said.kind == Kind.IDLE for said in behind)


def _end(said: Said) -> int:
    """How many calls all have to have made before a rank can be served."""
    if said.kind == Kind.STEPS:
        return said.made
    return max(said.needs, default=-1) + 1


_of_this_process: Agreement | None = None
_waits: list[int] = []  # threads that wait for peers outside of calls


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """This rank waits for others, which need not have made the calls that it has made."""
    thread = threading.get_ident()
    _waits.append(thread)
    try:
        yield
    finally:
        _waits.remove(thread)


def waits(thread: int) -> bool:
    """Whether it does."""
    return thread in _waits


def idle_kind() -> Kind:
    """Of a rank that does nothing with tensors."""
    return Kind.WAITS if _waits or _C.waits_for_peers() else Kind.IDLE


def begin(agreement: Agreement) -> Agreement:
    """It is that of this process, until the next."""
    global _of_this_process
    _of_this_process = agreement
    _calls.start()
    return agreement


def active() -> Agreement | None:
    """That of this process, unless its ranks have given up."""
    return _of_this_process if _calls.on() else None


def answer_peers() -> None:
    """Before a call of this rank: others may wait for those that it has made."""
    if agreement := active():
        agreement.before_call()


def run_alone(
    operands: list[torch.Tensor], attach: Callable[[list[torch.Tensor]], list[torch.Tensor]]
) -> list[torch.Tensor]:
    """The results of a call that is in no program of all ranks, once it has been run."""
    agreement = active()
    if agreement is None:  # they have given up meanwhile
        return attach(operands)
    return agreement.alone(operands, attach)
