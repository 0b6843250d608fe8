"""What takes time on the device, in the order in which it came: programs, and what reads them.

It happens on a thread of its own, so that a tensor that is there can be read while a collective
waits for another rank.
"""

from __future__ import annotations

import collections
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from . import errors, store
from .attendance import COMPUTES
from .programs import Program
from .wire import Line, Writer

_LOOK_S = 0.25
_MOST_APART_S = 2.0
_BUSY_OVER_S = 1.0
_BUSY = 0.02  # of a processor: one that waits in gloo uses less
_SAY_AGAIN_S = 5.0
_PART = 4 << 20  # bytes of a tensor
_TO_HEAR_S = 2.0  # gloo notices that a connection closed, and attendance.py too, at about one time


class Job(Protocol):
    """Something to be done, or not."""

    def work(self) -> Writer | None:
        """Do it; returns what is answered."""

    def fail(self, error: BaseException) -> None:
        """It has not been done, for this reason."""


class Runs:
    """Jobs of one device. Its owner adds them from one thread."""

    def __init__(self, line: Line, failed: Callable[[BaseException], None]) -> None:
        self._line = line
        self._failed = failed  # called if a program fails that others run as well
        self._lock = threading.Lock()
        self._broken: errors.Refused | None = None
        self._heard = threading.Event()
        self._held: set[Job] = set()  # of those that wait, which lose() leaves alone
        self._met = 0  # collectives that have begun
        self._computes = False  # and does not only wait
        # When the program with the last of them began, while it runs, and how long it may wait.
        self._running: tuple[float, float] | None = None
        self._begin()

    def _begin(self) -> None:
        # The request, how many collectives there are, and how long they may wait.
        self._waiting: dict[Job, tuple[int, int, float]] = {}
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        threading.Thread(target=self._work, args=(self._jobs,), daemon=True).start()

    def add(self, job: Job, request: int, collectives: int, limit_s: float = 0.0) -> None:
        """Do it after all others; at once, if there are none and it waits for no other rank."""
        with self._lock:
            broken = self._broken if collectives else None
            here = not collectives and not self._waiting
            if broken is None:
                self._waiting[job] = request, collectives, limit_s
            jobs = self._jobs
        if broken is not None:
            job.fail(broken)
            self._refuse(request, broken)
        elif here:
            self._do(job)
        else:
            jobs.put(job)

    def lose(self, error: errors.Refused) -> None:
        """Another rank has gone: what waits may wait for it, and cannot be called back."""
        with self._lock:
            if self._broken is not None:
                return  # what has come since waits for nobody
            self._broken = error
            self._heard.set()
            before = self._waiting
            failed = {job: request for job, request in before.items() if job not in self._held}
            self._begin()
            self._waiting.update((job, before[job]) for job in self._held if job in before)
            for job in failed:
                job.fail(error)
        for request, *_ in failed.values():
            self._refuse(request, error)

    def hold(self, job: Job) -> None:
        """It has begun what must end before it is answered. Raises if it has been answered."""
        with self._lock:
            if job not in self._waiting:
                raise self._broken or AssertionError("it is not waited for")
            self._held.add(job)

    def _work(self, jobs: queue.SimpleQueue[Job]) -> None:
        while jobs is self._jobs:
            self._do(jobs.get())

    def watch(self, late: Callable[[float, float], None], stalled: Callable[[], None]) -> None:
        """Call `late`, with how long it has run and its limit, of one that only waits for others.

        Before the limit, from time to time, `stalled`.
        """
        threading.Thread(target=self._watch, args=(late, stalled), daemon=True).start()

    def _watch(self, late: Callable[[float, float], None], stalled: Callable[[], None]) -> None:
        said = 0.0
        told: tuple[float, float] | None = None  # of which program `stalled` was told
        next_s = 0.0  # and when it is again
        used = collections.deque([time.process_time()], maxlen=1 + int(_BUSY_OVER_S / _LOOK_S))
        while self._broken is None:
            time.sleep(_LOOK_S)
            used.append(time.process_time())
            self._computes = used[-1] - used[0] > _BUSY * _LOOK_S * (len(used) - 1)
            running, now = self._running, time.monotonic()
            if running is None:
                continue
            since, limit_s = running
            if told is not running:
                told, next_s = running, _LOOK_S
            if now - since >= next_s and used[-1] - used[-2] <= _BUSY * _LOOK_S:
                next_s += min(next_s, _MOST_APART_S)
                stalled()
            if self._computes or now - since < limit_s:
                continue
            if now - said > _SAY_AGAIN_S:
                said = now
                late(now - since, limit_s)

    def meets(self) -> bool:
        """Whether a program that meets others runs, or waits for its turn."""
        with self._lock:
            return any(collectives for _, collectives, _ in self._waiting.values())

    def where(self) -> str:
        """How far it is, in words."""
        running = self._running is not None
        does = "is in the last program of them" if running else "has ended them"
        if running and self._computes:
            does += f", and {COMPUTES}"
        return f"has begun {self._met} collectives, and {does}"

    def _do(self, job: Job) -> None:
        _, collectives, limit_s = self._waiting.get(job, (0, 0, 0.0))
        if collectives:
            self._met += collectives
            self._running = time.monotonic(), limit_s
            try:
                self._finish(job)
            finally:
                self._running = None
        else:
            self._finish(job)

    def _finish(self, job: Job) -> None:
        try:
            answer = job.work()
        except Exception as error:
            meets_others = self._waiting.get(job, (0, 0, 0.0))[1]
            if meets_others and not self._heard.wait(_TO_HEAR_S):  # of a rank that has gone
                self._failed(error)  # who waits for this rank would wait for ever
                self._heard.wait(_TO_HEAR_S)  # lose() says it better
            if (request := self._end(job, error)) is not None:
                self._refuse(request, error)
        else:
            if request := self._end(job):
                self._line.answer(request, answer)

    def _end(self, job: Job, error: BaseException | None = None) -> int | None:
        """The request that is to be answered; None if lose() has done that."""
        with self._lock:
            request, *_ = self._waiting.pop(job, (None, 0, 0.0))
            self._held.discard(job)
            if request is not None and error is not None:
                job.fail(error)
            return request

    def _refuse(self, request: int, error: BaseException) -> None:
        if request:
            self._line.refuse(request, *errors.of_exception(error))


class Execution:
    """A program that runs."""

    def __init__(
        self,
        client: Any,
        program: Program,
        inputs: Sequence[store.Slot],
        kept: Sequence[int],
        outputs: Sequence[store.Slot],
        accounts: store.Accounts,
        meets: Callable[[Program], None],
    ) -> None:
        self._client, self._program, self._meets = client, program, meets
        self._inputs, self._kept, self._outputs = inputs, kept, outputs
        self._accounts = accounts

    def work(self) -> None:
        """Run it, and wait for what it makes."""
        arrays = [slot.get() for slot in self._inputs]
        for index in self._program.donated.intersection(self._kept):
            arrays[index] = store.duplicate(self._client, arrays[index])
        if self._program.collectives:
            self._meets(self._program)
        no_outputs = not self._outputs
        results = self._program.loaded.execute_sharded(arrays, with_tokens=no_outputs)
        del arrays
        if no_outputs:
            results.consume_token().block_until_ready()
        made = [row[0] for row in results.disassemble_into_single_device_arrays()]
        for array in made:
            array.block_until_ready()
        for index in self._program.donated.difference(self._kept):
            self._accounts.freed(self._inputs[index])
        for slot, array in zip(self._outputs, made, strict=True):
            slot.array = array
            self._accounts.made(slot)

    def fail(self, error: BaseException) -> None:
        """Its outputs have the same error."""
        for slot in self._outputs:
            slot.error = error
        for index in self._program.donated.difference(self._kept):
            self._accounts.freed(self._inputs[index])


class Reading:
    """Bytes of a buffer, for a segment or for the answer."""

    def __init__(
        self,
        runs: Runs,
        slot: store.Slot,
        offset: int,
        size: int,
        to: Any | None,
        part: Callable[[int], None],
    ) -> None:
        self._runs, self._part = runs, part
        self._slot, self._offset, self._size, self._to = slot, offset, size, to

    def work(self) -> Writer | None:
        """Wait for it, and copy it."""
        self._slot.get().block_until_ready()
        self._runs.hold(self)  # who is answered may use the segment for something else
        return self.copy()

    def copy(self) -> Writer | None:
        """Copy what is there."""
        content = store.read(self._slot.get(), self._offset, self._size)
        if self._to is None:
            return Writer().raw(content)
        for begin in range(0, self._size, _PART):  # the rank copies one while the next is copied
            if begin:
                self._part(begin)
            end = min(begin + _PART, self._size)
            self._to[begin:end] = content[begin:end]
        return None

    def fail(self, error: BaseException) -> None:
        """Nothing depends on it."""


class Copying:
    """A second buffer with the content of one."""

    def __init__(
        self, client: Any, source: store.Slot, copy: store.Slot, accounts: store.Accounts
    ) -> None:
        self._client, self._source, self._copy = client, source, copy
        self._accounts = accounts

    def work(self) -> None:
        """Copy it."""
        self._copy.array = store.duplicate(self._client, self._source.get())
        self._accounts.made(self._copy)

    def fail(self, error: BaseException) -> None:
        """The copy has the same error."""
        self._copy.error = error
