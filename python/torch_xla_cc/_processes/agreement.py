"""What ranks that have to run the same programs run of what they have pending, and when.

Calls of torch.distributed stay in the graph, and a rank may want to run it where others do not: it
reads alone, or steps where they are still tracing. So before anything with a call in it runs, all
ranks say in a round (rounds.py) where they are and what they would run:

1. All would run, and it is the same: it is one program.
2. Else the calls that somebody needs, and all have made, run as one program of these alone, and
   the graph stays: their results become known, who reads computes the rest by itself, who steps
   where others do not all that it has. Who reads so again and again lets go of calls that have run,
   and all step at the end of a window (window.py).
3. Ranks have made different calls, or one cannot go on: each call runs when it is made, as with
   TORCH_XLA_CC_CALLS=each, until all have made some more calls of all ranks, which they count.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import NamedTuple

import torch

from torch_xla_cc import _C
from torch_xla_cc._C import CollectiveTimeoutError, RanksDisagree
from torch_xla_cc._processes import evaluate
from torch_xla_cc._processes.pending import Known, Living, StockCollective, living_now
from torch_xla_cc._processes.rounds import Poke, RanksGone, Rounds
from torch_xla_cc._processes.said import Kind, Needs, Said, end_of, is_stuck, number_of, unpacked
from torch_xla_cc._processes.window import Window
from torch_xla_cc._runtime import chains
from torch_xla_cc._runtime.device_tensors import needs_run, replace

_calls = _C.noted_calls
_UNTIL = 64  # calls of all ranks for which they give up the first time; then twice as many
_AGAIN_S = 0.05


class _Outcome(NamedTuple):
    """What came of a round, for this rank."""

    same: bool = False  # all run what they have, which is the same
    served: bool = False  # the calls that it needs have run
    together: bool = False  # all want something, after the same calls, and have what they need
    stuck: bool = False  # it would step, and nobody is served before it goes on


class Agreement:
    """Of the ranks of a world."""

    def __init__(self, rounds: Rounds, device: int, run_live: Callable[[], None]) -> None:
        self.rounds = rounds
        self._busy = False  # a thread is in a round
        self._failed: BaseException | None = None
        self._pid = os.getpid()
        self._device = device  # the number of this process's
        self._run_live = run_live  # runs all that is pending
        self._turn = threading.RLock()  # of the thread that is in a round
        self._known = Known()
        self._window = Window()
        self._at_end = False  # this rank steps there, where all ranks come
        self._left_differs = False  # what only C++ has of the graph, on ranks that have stepped
        self._since: float | None = None  # when it first wanted what it wants
        self._poke: Poke | None = None
        self._gives_up_for = _UNTIL
        self._graphs: set[bytes] = set()  # that it has had

    def is_of_this_process(self) -> bool:
        """And not of that which has forked it."""
        return os.getpid() == self._pid

    def step(self, run: Callable[[], None]) -> None:
        """Run all that is pending, by `run` if it is the same on all ranks."""
        with self._turn:
            if self._want(Kind.STEPS, [], run):
                run()

    def read(self, tensors: list[torch.Tensor]) -> list[torch.Tensor] | None:
        """What to read in their place; None: themselves."""
        _C.forget_dead_tensors()  # in a loop that only reads too
        with self._turn:
            while _calls.count():
                pending = [x for x in tensors if needs_run(x)]
                if not pending or not chains.is_in(pending):
                    return None
                if self._known.any() and not self._known.needed(pending):
                    return self._known.evaluate(tensors)
                self._want(Kind.READS, pending, self._run_live)
                if self._window.is_cut() and not self._known.unknown(_calls.count()):
                    with contextlib.suppress(StockCollective):  # what is read may need none
                        self._settle_known(pending)
        return None

    def _want(self, kind: Kind, read: list[torch.Tensor], run: Callable[[], None]) -> bool:
        """Come to the end of a round that serves this rank. Whether nothing is noted any more."""
        with self._in_step():
            return self._wanted(kind, read, run)

    @contextlib.contextmanager
    def _in_step(self) -> Iterator[None]:
        """Ranks are to be in the same rounds: if one fails, so does it for all, for good."""
        if self._failed is not None:
            raise RanksGone(f"{self._failed}. Start the job again") from self._failed
        if self._busy:
            raise RuntimeError(
                "torch_xla_cc: a tensor that needs a collective is read, or the graph run, while "
                "this thread agrees with other ranks on what they run, as in a __del__"
            )
        self._busy = True
        try:
            yield
        except RanksDisagree:  # which all ranks raise
            raise
        except BaseException as error:
            self._failed = error
            self.rounds.leave()
            raise
        finally:
            self._busy = False

    def _wanted(self, kind: Kind, read: list[torch.Tensor], run: Callable[[], None]) -> bool:
        self._known.look_again()
        while self._known.unknown(made := _calls.count()) or (
            kind == Kind.STEPS and self._at_end and made >= self._window.end
        ):
            living = self._living(kind)
            came = self._round(self._said(kind, living), lambda: self._needs(kind, living, read))  # noqa: B023
            if came.together or (came.same and not self._known.unknown(made)):
                living.become(self._known.evaluate(living.pending))
                replace(read, self._known.evaluate(read))
                self._end_chain()
                if not self._left_is_same(made):
                    break
            elif came.same:
                living.runs()
            if came.together or came.same:
                self._window.ended()
                self._known.forget()
                run()
                return False
            if came.stuck:
                return False  # it need not have run: what is pending stays
            if came.served:
                break
        if kind == Kind.STEPS and _calls.count():
            self._settle_known([])
            return False
        return True

    def _settle_known(self, read: list[torch.Tensor]) -> None:
        """Have what is pending be what it is, where all calls that it needs are known.

        Others have the calls in their graphs, and so may this one: they stay noted.
        """
        made = _calls.count()
        living = Living(self._device)
        living.become(self._known.evaluate(living.pending))
        replace(read, self._known.evaluate(read))
        if not self._known.unknown(made):
            self._end_chain()
            if not Living(self._device).left():
                self._known.settle(made)

    def _end_chain(self) -> None:
        """What follows need not wait for calls that have run, or run apart."""
        chains.ended()
        _C.ranks_drop(self._device)

    def _living(self, kind: Kind) -> Living:
        again = kind == Kind.READS and self._known.any()  # another graph each time
        return living_now(self._device, self._known, self._graphs, looks=not again)

    def _needs(self, kind: Kind, living: Living, read: list[torch.Tensor]) -> Needs:
        if kind == Kind.SETTLES:
            unknown = frozenset(self._known.unknown(_calls.count()))
            return Needs(unknown, unknown)
        of_all = frozenset(self._known.needed(living.pending + read))
        return Needs(frozenset(self._known.needed(read)) if read else of_all, of_all)

    def settle(self) -> None:
        """Have all calls run that were made: what follows runs by itself, and behind them."""
        with self._turn:
            while self._known.unknown(_calls.count()):
                self._want(Kind.SETTLES, [], self._run_live)

    def clear(self) -> None:
        """Have nothing pending that Python knows: what follows is a program of its own."""
        with self._turn:
            if not _calls.count():
                self._run_live()
                return
            self.settle()
            self._settle_known([])

    def end(self) -> None:
        """Run all that is pending, also where others are late, as no step need wait for."""
        self.step(self._run_live)
        if _calls.count():
            self.settle()
            self.step(self._run_live)

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
                if self._failed is not None or self._busy:
                    return
                if kind == Kind.PASSES and _calls.count() < poke.end:
                    return
                with self._in_step():
                    self._round(self._said(kind))
                if kind != Kind.PASSES:
                    return  # it may have something to do again
            _calls.set_wanted(self._window.is_cut())

    def before_call(self) -> None:
        """Answer those that wait; and what is pending is not to grow without end."""
        self.answer(Kind.PASSES)
        if _calls.count() >= self._window.end:  # as others that have made as many
            self._at_end = True
            self.step(self._run_live)
            self._at_end = False  # if it fails, so does all that follows

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

    def _said(self, kind: Kind, living: Living | None = None) -> Said:
        made = _calls.count()
        said = Said(kind, made, _calls.chain(made) >> 1)
        if living is None:
            return said
        if self._since is None:
            self._since = time.monotonic()
        waited = int(1000 * (time.monotonic() - self._since))
        return said._replace(graph=living.graph, others=living.others, waited=waited)

    def _round(self, own: Said, needs: Callable[[], Needs] = Needs) -> _Outcome:
        poke = Poke(self.rounds.number, own.made, own.kind != Kind.STEPS)
        numbers = self.rounds.meet(list(own), poke if own.kind.wants else None)
        all_said = [Said(Kind(kind), *rest) for kind, *rest in numbers]
        alike = {said._replace(kind=Kind.STEPS, waited=0) for said in all_said}
        if len(alike) == 1 and all(x.kind.wants for x in all_said) and not self._left_differs:
            self._since = None
            return _Outcome(same=True)
        return self._differ(all_said, needs())

    def _differ(self, all_said: list[Said], own: Needs) -> _Outcome:
        """Not all ranks run what they have, or not the same."""
        least = min(said.made for said in all_said)
        lacks = any(_calls.of_all(call) for call in own.wanted if call >= least)
        numbers = self.rounds.meet([_calls.chain(least) >> 1, lacks, *own.packed()], None)
        if len({chain for chain, *_ in numbers}) > 1:
            self._give_up("they do not make the same calls")
            return _Outcome()
        lack = [bool(lacks) for _, lacks, *_ in numbers]
        all_needs = [unpacked(words) for _, _, *words in numbers]
        together = all(said.kind.wants and said.made == least for said in all_said)
        ends = [end_of(said, needs) for said, needs in zip(all_said, all_needs, strict=True)]
        served = [
            said.kind.wants and end <= least for said, end in zip(all_said, ends, strict=True)
        ]
        needed = [
            needs.of_all if together else needs.wanted
            for needs, is_served in zip(all_needs, served, strict=True)
            if is_served
        ]
        self._run_calls(sorted(frozenset().union(*needed)))
        if any(served):
            if not together:
                self._see_window(all_said, served)
            if served[self.rounds.rank]:
                self._since = None
            return _Outcome(served=served[self.rounds.rank], together=together)
        if not is_stuck(all_said, ends, lack, 1000 * self.rounds.limit.total_seconds()):
            self._require_in_time(all_said)
            time.sleep(_AGAIN_S)
            return _Outcome()
        self._since = None
        self._window.let_go()  # of which a rank may not come to the end
        # Who would step need not, and may then do what the rank that is behind waits for.
        if any(said.kind == Kind.STEPS for said in all_said):
            return _Outcome(stuck=all_said[self.rounds.rank].kind == Kind.STEPS)
        self._give_up("one does nothing while another waits for a call of it")
        return _Outcome()

    def _require_in_time(self, all_said: list[Said]) -> None:
        """Raise, on all ranks, if one has waited for longer than the world has time."""
        waited = max(said.waited for said in all_said)
        if timedelta(milliseconds=waited) <= self.rounds.limit:
            return
        most = max(said.made for said in all_said)
        made = {rank: said.made for rank, said in enumerate(all_said) if said.made < most}
        self._failed = CollectiveTimeoutError(
            f"torch_xla_cc: a rank has waited for {waited / 1000:g} s to run calls of "
            f"torch.distributed that all ranks have to make. Of {most} calls that are pending on "
            f"others, these ranks have made fewer: {made}. init_process_group(timeout=...) sets "
            "for how long they may wait"
        )
        raise self._failed

    def _run_calls(self, calls: list[int]) -> None:
        """Run calls that all ranks have made, as one program if it is the same on all."""
        if not calls:
            return
        if not self._window.is_cut():
            shared = self._known.shared(calls)
            if self._all_say(number_of(shared.program.name)):
                self._known.run_shared(calls, shared)
                return
            del shared  # it holds tensors
        for call in self._known.unknown(calls[-1] + 1):
            self._known.run_alone(call, self._device)

    def _see_window(self, all_said: list[Said], served: list[bool]) -> None:
        """Whether ranks read alone, or at the window's end some do not step with the others."""
        kinds = {said.kind for said, is_served in zip(all_said, served, strict=True) if is_served}
        if Kind.READS in kinds:
            self._window.read_alone(said.made for said in all_said)
        if Kind.STEPS in kinds and min(said.made for said in all_said) >= self._window.end:
            self._window.let_go()

    def _all_say(self, name: int) -> bool:
        """Whether all ranks, which all ask so, have this."""
        return len({tuple(said) for said in self.rounds.meet([name], None)}) == 1

    def _left_is_same(self, made: int) -> bool:
        """Whether what C++ alone has with calls in it is so on all ranks; else they stay noted."""
        graphs = Living(self._device).left()
        same = self._all_say(number_of(hashlib.sha256("".join(graphs).encode()).digest()))
        self._left_differs = not same
        if not same and 0 <= made < _calls.MOST:
            self._window.let_go()
        if same or 0 <= made < _calls.MOST:
            return same
        self._failed = RanksDisagree(
            "torch_xla_cc: ranks step with different programs, after the same calls of "
            f"torch.distributed, and {len(graphs)} tensors of this rank that only C++ holds wait "
            "for calls in them. Do the same work in a step on all ranks"
        )
        raise self._failed

    def _give_up(self, why: str) -> None:
        self._window.let_go()
        self._left_is_same(made=-1)
        counted = max(number for (number,) in self.rounds.meet([_calls.counted()], None))
        # A call that others have yet to make waits for them.
        until = counted + self._gives_up_for
        self._gives_up_for *= 2
        try:
            for call in self._known.unknown(_calls.count()):
                self._known.run_alone(call, self._device, _calls.apart)
            living = Living(self._device)
            living.become(self._known.evaluate(living.pending))
        finally:  # also where a group's ranks disagree
            self._known.forget()
            _calls.give_up(until)
        warnings.warn(
            "torch_xla_cc: the ranks' calls of torch.distributed cannot be parts of one program: "
            f"{why}. For a while, each call runs when it is made. TORCH_XLA_CC_CALLS=each does so "
            "always, without this warning",
            RuntimeWarning,
            stacklevel=2,
        )
