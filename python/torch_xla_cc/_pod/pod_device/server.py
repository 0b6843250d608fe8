"""What a device process does: it reads what its rank says, and does it.

Three threads: this one reads messages, and does what takes no time; one compiles; one runs programs
(runs.py).
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from . import errors, profile, programs, runs, store, types
from .jaxlib_xla import xla
from .meetings import Group
from .wire import Kind, Line, Reader, Writer
from .world import World

_Job = Callable[[], None]
_START_AGAIN = "No collective can run any more: start the job again"


class Server:
    """The buffers and programs of one rank."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._slots: dict[int, store.Slot] = {}
        self._programs: dict[int, programs.Program] = {}
        self._segments = store.Segments()
        self._accounts = store.Accounts()
        self._runs = runs.Runs(line, self._failed)
        self._compiles: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._limits: dict[Group, float] = {}  # of groups, in seconds
        self._world: World | None = None
        self._profile_of: profile.Profile | None = None  # while the rank is traced
        self._client: Any

    def serve(self) -> None:
        """Until the rank has gone, or says that it is enough."""
        threading.Thread(target=_work, args=(self._compiles,), daemon=True).start()
        while (message := self._line.receive()) is not None and message.kind != Kind.STOP:
            do = self._DO[Kind(message.kind)]
            try:
                if message.kind == Kind.SEGMENT:
                    self._segments.add(
                        message.body.number(), message.body.number(), *message.descriptors
                    )
                else:
                    do(self, message.request, message.body)
            except Exception as error:
                self._refuse(message.request, error)
        if message is not None and self._world is not None:
            self._world.leave()

    def _refuse(self, request: int, error: BaseException) -> None:
        if request:
            self._line.refuse(request, *errors.of_exception(error))

    def _start(self, request: int, body: Reader) -> None:
        options = {body.text(): body.text() for _ in range(body.number())}
        self._world = World(options, self._lost, self._runs.where, self._wanted)
        self._client = self._world.client
        if self._world.size > 1:
            self._runs.watch(self._world.late, self._world.stalled)
        version = f"torch_xla_cc pod on jaxlib's {self._client.platform_version}"
        answer = Writer().number(self._world.rank).number(self._world.size).text(version)
        self._line.answer(request, answer.text(self._world.collectives))

    def _failed(self, error: BaseException) -> None:
        if self._world is not None:
            self._world.fail(errors.of_exception(error)[1])

    def _lost(self, what: str) -> None:
        """Another rank has gone, and with it all that collectives could still do."""
        with contextlib.suppress(OSError):  # so has the own one
            self._line.lost(what)
        self._runs.lose(errors.Refused(errors.UNAVAILABLE, f"{what.rstrip('.')}. {_START_AGAIN}"))

    def _wanted(self) -> None:
        """Others wait for what this rank has not given to its device: it may still be traced."""
        if not self._runs.meets():  # else it waits for others itself
            with contextlib.suppress(OSError):  # the rank has gone
                self._line.wanted()

    def _segment(self, request: int, body: Reader) -> None:
        raise AssertionError("it comes with a descriptor")

    def _drop_segment(self, request: int, body: Reader) -> None:
        self._segments.drop(body.number())

    def _put(self, request: int, body: Reader) -> None:
        number, kind, dims = body.number(), body.number(), body.numbers()
        segment, content = body.number(), body.content()
        slot = self._slots[number] = store.Slot()
        try:
            if segment:
                slot.size = types.size_of(kind, dims)
                raw = self._segment_bytes(segment, slot.size)
                slot.array = store.shared(
                    self._client, kind, dims, raw, lambda: self._line.released(segment)
                )
            else:
                slot.size = len(content)
                raw = np.frombuffer(content, np.uint8)
                slot.array = store.copied(self._client, kind, dims, raw)
            self._accounts.made(slot)
        except Exception as error:
            slot.error = error

    def _segment_bytes(self, segment: int, size: int) -> np.ndarray[Any, Any]:
        try:
            return self._segments.bytes(segment, size)
        except errors.Refused:
            self._line.released(segment)
            raise

    def _slot(self, number: int) -> store.Slot:
        if number not in self._slots:
            raise errors.Refused(errors.INVALID_ARGUMENT, f"there is no buffer {number}")
        return self._slots[number]

    def _copy(self, request: int, body: Reader) -> None:
        source, number = self._slot(body.number()), body.number()
        copy = self._slots[number] = store.Slot(source.size)
        self._runs.add(runs.Copying(self._client, source, copy, self._accounts), 0, 0)

    def _free(self, request: int, body: Reader) -> None:
        for number in body.numbers():
            slot = self._slots.pop(number, None)
            if slot is not None:
                self._accounts.freed(slot)
        xla.collect_garbage()

    def _get(self, request: int, body: Reader) -> None:
        slot = self._slot(body.number())
        offset, size, segment = body.number(), body.number(), body.number()

        to = self._segments.bytes(segment, size) if segment else None

        def part(so_far: int) -> None:
            self._line.part(request, so_far)

        reading = runs.Reading(self._runs, slot, offset, size, to, part)
        if slot.ready():
            self._line.answer(request, reading.copy())
        else:
            self._runs.add(reading, request, 0)

    def _compile(self, request: int, body: Reader) -> None:
        number, form, code, options = body.number(), body.text(), body.content(), body.content()
        assert self._world is not None
        by_names = self._world.by_names
        self._build(
            request,
            number,
            lambda: programs.compiled(self._client, form, code, options, by_names=by_names),
        )

    def _load(self, request: int, body: Reader) -> None:
        number, code, options = body.number(), body.content(), body.content()
        assert self._world is not None
        by_names = self._world.by_names
        self._build(
            request,
            number,
            lambda: programs.loaded(self._client, code, options, by_names=by_names),
        )

    def _build(self, request: int, number: int, make: Callable[[], programs.Program]) -> None:
        def build() -> None:
            try:
                program = self._programs[number] = make()
                self._line.answer(request, program.facts)
            except Exception as error:
                self._refuse(request, error)

        self._compiles.put(build)

    def _serialize(self, request: int, body: Reader) -> None:
        assert self._world is not None
        program, by_names = self._programs[body.number()], self._world.by_names
        code = programs.serialized(self._client, program, by_names=by_names)
        self._line.answer(request, Writer().raw(code))

    def _cost_analysis(self, request: int, body: Reader) -> None:
        costs = self._programs[body.number()].loaded.cost_analysis()
        answer = Writer().number(len(costs))
        for name, value in costs.items():
            answer.text(name).text(repr(float(value)))
        self._line.answer(request, answer)

    def _compiled_memory(self, request: int, body: Reader) -> None:
        stats = self._programs[body.number()].loaded.get_compiled_memory_stats()
        answer = Writer()
        for name in _MEMORY_FIGURES:
            answer.number(getattr(stats, f"{name}_in_bytes"))
        self._line.answer(request, answer)

    def _device_memory(self, request: int, body: Reader) -> None:
        limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        figures = Writer().number(self._accounts.now).number(self._accounts.most).number(limit)
        self._line.answer(request, figures)

    def _meets(self, program: programs.Program) -> None:
        assert self._world is not None
        self._world.meets(program.calls, program.key, program.cliques, impatient=program.impatient)

    def _limit(self, request: int, body: Reader) -> None:
        group = tuple(body.numbers())
        self._limits[group] = max(body.number() / 1000, self._limits.get(group, 0.0))

    def _unload(self, request: int, body: Reader) -> None:
        self._programs.pop(body.number(), None)

    def _execute(self, request: int, body: Reader) -> None:
        program = self._programs[body.number()]
        given, numbers, kept = body.numbers(), body.numbers(), body.numbers()
        outputs = [store.Slot(size) for size in program.output_sizes]
        self._slots.update(zip(numbers, outputs, strict=True))
        try:
            inputs = [self._slot(number) for number in given]
        except errors.Refused as error:
            for slot in outputs:
                slot.error = error
            if program.collectives:  # who waits for this rank would wait for ever
                self._failed(error)
            raise
        for index in program.donated.difference(kept):  # nobody may read them any more
            del self._slots[given[index]]
        assert self._world is not None
        execution = runs.Execution(
            self._client, program, inputs, kept, outputs, self._accounts, self._meets
        )
        groups = [tuple(sorted(group)) for group, _ in program.calls.groups]
        limits = [self._limits[group] for group in groups if group in self._limits]
        links = program.calls.links if program.calls.has_messages() else ()
        for link, _ in links:  # of a message the longest of the groups that have both its ranks
            both = [limit for group, limit in self._limits.items() if {*link} <= {*group}]
            limits += [max(both)] if both else []
        limit_s = min([*limits, self._world.timeout_s])
        self._runs.add(execution, request, program.collectives, limit_s)

    def _profile(self, request: int, body: Reader) -> None:
        rank = self._world.rank if self._world is not None else 0
        if body.number():
            self._profile_of = profile.Profile()
            self._line.answer(request)
        else:
            traced, self._profile_of = self._profile_of, None
            self._line.answer(request, Writer().raw(traced.end(rank) if traced else b""))

    _DO: ClassVar[dict[Kind, Callable[[Server, int, Reader], None]]] = {
        Kind.START: _start,
        Kind.SEGMENT: _segment,
        Kind.DROP_SEGMENT: _drop_segment,
        Kind.PUT: _put,
        Kind.GET: _get,
        Kind.COPY: _copy,
        Kind.FREE: _free,
        Kind.COMPILE: _compile,
        Kind.LOAD: _load,
        Kind.SERIALIZE: _serialize,
        Kind.COST_ANALYSIS: _cost_analysis,
        Kind.COMPILED_MEMORY: _compiled_memory,
        Kind.DEVICE_MEMORY: _device_memory,
        Kind.UNLOAD: _unload,
        Kind.EXECUTE: _execute,
        Kind.LIMIT: _limit,
        Kind.PROFILE: _profile,
    }


# In the order of xla::CompiledMemoryStats (pod/abi/executable.h).
_MEMORY_FIGURES = (
    *("generated_code_size", "argument_size", "output_size", "alias_size", "temp_size"),
    *("host_generated_code_size", "host_argument_size", "host_output_size", "host_alias_size"),
    *("host_temp_size", "peak_memory"),
)


def _work(jobs: queue.SimpleQueue[_Job]) -> None:
    while True:
        jobs.get()()
