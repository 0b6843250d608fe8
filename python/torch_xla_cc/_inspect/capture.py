"""Ranks that run up to a step, of which all is taken that the step would run."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch_xla import runtime

from .. import _C
from .._ops.recording import Call, deliver, record
from .._runtime import chains, stand_ins
from .._runtime.call_site import call_site
from .._runtime.endings import result_of
from .._threads import read_hooks
from .._threads.launch import launch, timeout_of
from .compiled import is_cpu
from .lines import lines
from .stand_ins import Alone
from .trace import Step, Traced, living

_MOST_READS = 1000  # in a step: each ends a program


class Captured(BaseException):
    """Ends a program that has come to its step. Not an Exception: nobody shall catch it."""


class StepError(RuntimeError):
    """The step that is asked for is not there, or cannot be traced."""


class Capture:
    """Takes, of ranks that are threads, what their `step`-th step with collectives would run.

    The steps before it run. A rank that ends with collectives pending steps once more, as it does
    under launch. What is taken does not run, and may be for a device that is not here: `target`.

    With `alone` that rank of a dry-run world is the only one there is, and this thread. What its
    step reads is as if every rank had passed what this one does.
    """

    def __init__(
        self,
        title: str,
        target: str,
        world: int,
        step: int,
        timeout_s: float | None = None,
        ran: Callable[[int], None] | None = None,
        alone: int | None = None,
    ) -> None:
        self._title = title
        self._target = target
        self._world = world
        self._step = step
        self._timeout_s = timeout_of(timeout_s)
        self._ran = ran
        self._alone = alone
        self._ranks = world if alone is None else 1
        self._meeting = _Meeting(self._ranks, self._look)
        self._calls: list[Call] = []  # of all ranks, since record() began
        self._steps: dict[int, Step] = {}
        self._programs: dict[int, list[Traced]] = defaultdict(list)
        self._running: list[_Rank] = []

    def run(self, fn: Callable[..., Any], args: Sequence[Any] = ()) -> list[tuple[Traced, ...]]:
        """`fn(rank, *args)` on each rank, up to the step; its programs, by rank.

        There are several of a step that reads while collectives are pending.
        """
        if runtime.device_type() != "CPU":
            raise RuntimeError(
                f"{self._title}: its ranks are traced on virtual CPU devices, but PJRT_DEVICE is "
                f"{runtime.device_type()!r}. Set PJRT_DEVICE=CPU before torch_xla is used"
            )
        with lines(), record() as self._calls:
            if self._alone is None:
                launch(self._as_rank, (fn, *args), self._world, timeout_s=self._timeout_s)
            else:
                # On a thread of autograd's a backward pass would be for another target.
                with (
                    torch.autograd.set_multithreading_enabled(False),
                    stand_ins.standing(Alone(self._alone, self._world)),
                ):
                    self._as_rank(0, fn, *args)  # of its device
        return [tuple(self._programs[rank]) for rank in range(self._ranks)]

    def _as_rank(self, rank: int, fn: Callable[..., Any], *args: Any) -> None:  # noqa: ANN401
        one = _Rank(rank)
        self._running.append(one)
        try:
            with read_hooks.running(lambda _, *how: self._around(one, *how)), one.ends():
                self._begin(one)
                with contextlib.suppress(Captured):
                    number = rank if self._alone is None else self._alone
                    result = result_of(fn, number, *args)  # lives until its program is taken
                    self._ended(one)
                    del result
        finally:
            self._meeting.leave()

    @property
    def _is_here(self) -> bool:
        return is_cpu(self._target) and self._alone is None

    def _begin(self, one: _Rank) -> None:
        """Have the rank trace for the target, if its next step is the one."""
        if one.steps == self._step - 1:
            one.traces = True
            one.modes.enter_context(_C.call_mode(in_graph=True))
            if not self._is_here:
                _C.set_thread_target(self._target, self._world)

    def _around(
        self, one: _Rank, steps: bool, read: tuple[torch.Tensor, ...]
    ) -> contextlib.AbstractContextManager[None]:
        """Around each step and each read."""
        self._look_at_calls(one)
        if not (one.issued if steps else one.pending):
            return contextlib.nullcontext()  # nothing in it is of the target
        if self._alone is not None and one.traces and read and not chains.is_in(list(read)):
            return contextlib.nullcontext()  # a process, which meets the others in XLA, reads alone
        if one.traces and not steps and self._alone is None and not is_cpu(self._target):
            last = one.pending[-1]
            raise StepError(
                f"{self._title}: the step reads a tensor at {call_site()} after {last.op} of "
                f"{last.file}:{last.line}, but it is traced for {self._target} and cannot run "
                "here. Read it after the step, or inspect it for the target 'cpu', or one rank of "
                "it: --rank=0"
            )
        if self._alone is not None and one.pending and not one.traces:
            last = one.pending[-1]
            raise StepError(
                f"{self._title}: {last.op} of {last.file}:{last.line} is no call of "
                "torch.distributed, and in a dry run has nobody to meet before the step. Inspect "
                "the script without --rank"
            )
        one.read = read
        return self._runs(one, "" if steps else call_site())

    @property
    def _values(self) -> str:
        if self._alone is None:
            return "it has not, on these ranks"
        return "values are here as if every rank had passed what this one does"

    @contextlib.contextmanager
    def _runs(self, one: _Rank, read_at: str) -> Iterator[None]:
        """Around a graph with collectives, which a read ends, or the step."""
        steps = not read_at
        if one.traces:
            found = self._take(one, read_at)
            if steps:
                found.drop()
                raise Captured
            if self._alone is not None:  # as where ranks are processes, all of it
                read_hooks.run_all(one.rank)
        yield
        one.pending.clear()
        if steps:
            one.issued = 0
            one.steps += 1
            if one.rank == 0 and self._ran:
                self._ran(one.steps)
            self._begin(one)

    def _named(self, one: _Rank) -> int:
        """Which rank it is in the script: in a dry run one that is not the first here."""
        return one.rank if self._alone is None else self._alone

    def _ended(self, one: _Rank) -> None:
        """The rank has returned: what is pending is its last step."""
        self._look_at_calls(one)
        if not one.traces or (self._step > 1 and not one.issued):
            raise StepError(
                f"{self._title}: rank {self._named(one)} has ended after {one.steps} steps with "
                f"collectives, but step = {self._step} is asked for"
            )
        self._take(one, "").drop()

    def _take(self, one: _Rank, read_at: str) -> Step:
        """Make a program of what is pending on the rank, when all ranks have come to this."""
        if len(self._programs[one.rank]) >= _MOST_READS:
            raise StepError(
                f"{self._title}: it has read {_MOST_READS:,} times what collectives give, and now "
                f"does at {read_at}. If that is a loop until something converges, or arrives: "
                f"{self._values}. End it after some steps"
            )
        if not self._meeting.come(self._timeout_s):
            raise _C.RanksDisagree(
                f"{self._title}: rank {self._named(one)} has come to the end of step {self._step}, "
                "or to a read in it, and another rank has not"
            )
        found = self._steps.pop(one.rank)
        program = found.traced(self._title, tuple(one.pending), self._target, self._world, read_at)
        self._programs[one.rank].append(program)
        return found

    def _look(self) -> None:
        found = living()
        self._steps = {
            one.rank: Step(one.rank, [*found[one.rank], *one.read]) for one in self._running
        }

    def _look_at_calls(self, one: _Rank) -> None:
        deliver()
        seen, one.seen = one.seen, len(self._calls)
        new = [call for call in self._calls[seen : one.seen] if call.rank == one.rank]
        one.pending += new
        on_paper, one.on_paper = one.on_paper, _C.calls_on_paper()
        one.issued += len(new) + one.on_paper - on_paper


class _Rank:
    """A rank that runs."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.seen = 0  # how many calls of all ranks
        self.on_paper = _C.calls_on_paper()  # how many of those that are in no graph
        self.steps = 0  # that it has run
        self.traces = False  # it is in the step that is taken
        self.modes = contextlib.ExitStack()  # that hold while it is
        self.issued = 0  # calls since its last step
        self.pending: list[Call] = []  # those of them that have not run
        self.read: tuple[torch.Tensor, ...] = ()  # now, which Python may not know

    @contextlib.contextmanager
    def ends(self) -> Iterator[None]:
        """What holds for the thread while it traces does not hold afterwards."""
        try:
            yield
        finally:
            if self.traces:
                self.modes.close()
                _C.set_thread_target(None, 0)


class _Meeting:
    """Where ranks wait for each other, time and again.

    The last to come looks at the tensors of all: the others keep still meanwhile.
    """

    def __init__(self, ranks: int, look: Callable[[], None]) -> None:
        self._ranks = ranks
        self._look = look
        self._changed = threading.Condition()
        self._waiting = 0
        self._rounds = 0
        self._left = False

    def come(self, timeout_s: float) -> bool:
        """Whether all ranks have come; False if one has left, or does not come in time."""
        with self._changed:
            this = self._rounds
            self._waiting += 1
            if self._waiting == self._ranks:
                self._look()
                self._waiting = 0
                self._rounds += 1
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._rounds != this or self._left, timeout_s)
            return self._rounds != this

    def leave(self) -> None:
        """A rank will not come any more."""
        with self._changed:
            self._left = True
            self._changed.notify_all()
