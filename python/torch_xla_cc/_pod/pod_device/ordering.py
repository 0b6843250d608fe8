"""The order of collectives in a program: that in which its rank has called them.

Each rank traces a program of its own, and these may differ: a rank's number is in it, or a scalar
of 0 or 1, which torch_xla makes a constant, or its results are used in another order. Of different
programs torch_xla writes, and XLA:CPU schedules, independent collectives in different orders, and
the all_gather of a constant is folded away. Then ranks wait for each other, or get wrong numbers.
So each collective stands in a computation that is not inlined, and a tiny token goes from one to
the next, as it does on threads (docs/spec.md, Ordering). It goes into what is called, but not into
loops and branches. The order is that of the places that ours have in the names of what is called;
stock torch_xla's have none, and stay behind what they stand behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from . import hlo, protos

COLLECTIVES = frozenset(
    {
        *("all-gather", "all-reduce", "all-to-all", "collective-broadcast", "collective-permute"),
        *("ragged-all-to-all", "reduce-scatter"),
    }
)

_PLACE = re.compile(rb"place_(\d+)")  # of what is called: its number in the program (lower.cc)
_UNKNOWN = -1
_NOT_INLINED = protos.bytes_field(
    hlo.FRONTEND_ATTRIBUTES,
    protos.bytes_field(1, protos.bytes_field(1, b"inlineable") + protos.bytes_field(2, b"false")),
)


def ordered(module: bytes) -> bytes:
    """A HloModuleProto with its collectives in order."""
    order = _Order(module)
    if not order.meets(order.entry):
        return module
    order.go_through_entry()
    return protos.without(module, hlo.COMPUTATIONS) + b"".join(order.written(order.entry, set()))


class _Order:
    """Leads the token through the computations that have collectives."""

    def __init__(self, module: bytes) -> None:
        self._found = dict(map(hlo.computation, protos.inside(module, hlo.COMPUTATIONS)))
        self.entry = protos.number(module, hlo.ENTRY_ID)
        self._ids = hlo.Ids(self._found)
        self._meets: dict[int, bool] = {}
        self._led: dict[int, int] = {}  # by what was called: what is called now

    def meets(self, computation: int) -> bool:
        """Whether there is a collective in it, or in one that it calls."""
        if computation not in self._meets:
            self._meets[computation] = any(
                i.opcode in COLLECTIVES or (i.opcode == "call" and self.meets(i.called[0]))
                for i in self._found[computation].instructions
            )
        return self._meets[computation]

    def written(self, computation: int, done: set[int]) -> Iterator[bytes]:
        """It and what it calls, callees first."""
        if computation in done:
            return
        done.add(computation)
        found = self._found[computation]
        for instruction in found.instructions:
            for callee in instruction.called:
                yield from self.written(callee, done)
        yield protos.bytes_field(hlo.COMPUTATIONS, hlo.written(found))

    def go_through_entry(self) -> None:
        """The token begins there, as something that is no constant."""
        token = self._ids.new("replica-id", hlo.TOKEN)
        old = self._found[self.entry]
        instructions, _ = self._lead(old.instructions, token)
        self._found[self.entry] = old._replace(instructions=instructions)

    def _through(self, computation: int) -> int:
        """One like it, which takes a token more, and returns it."""
        if computation not in self._led:
            _, root, before = self._found[computation]
            numbers = {i.id: self._ids.next() for i in before}
            before = [hlo.renumbered(i, numbers) for i in before]
            count = sum(i.opcode == "parameter" for i in before)
            instructions, token = self._lead(before, self._ids.parameter(count, hlo.TOKEN))
            result = next(i for i in instructions if i.id == numbers[root])
            self._led[computation] = self._finished(instructions, result, token)
        return self._led[computation]

    def _lead(
        self, before: list[hlo.Instruction], start: hlo.Instruction
    ) -> tuple[list[hlo.Instruction], hlo.Instruction]:
        """The instructions with the token through all that meet others, and the last token."""
        token = start
        instead = {}
        shapes = {i.id: i.shape for i in before}
        for meeting in _by_place([(i, self._place(i)) for i in before]):
            more = protos.only(meeting.raw, hlo.METADATA)
            if meeting.opcode in COLLECTIVES:
                callee = self._alone(meeting, [shapes[i] for i in meeting.operands])
                more += _NOT_INLINED
            else:
                callee = self._through(meeting.called[0])
            shape = hlo.tuple_of([*hlo.elements(meeting.shape), hlo.TOKEN])
            call = self._ids.new("call", shape, (*meeting.operands, token.id), (callee,), more)
            *results, token = self._ids.taken_apart(call)
            if hlo.is_tuple(meeting.shape):
                ids = tuple(i.id for i in results)
                whole = hlo.made(meeting.id, "tuple", meeting.shape, ids)
            else:  # the users of the collective are those of its only result
                numbers = {results[0].id: meeting.id, call.id: call.id}
                results, whole = [], hlo.renumbered(results[0], numbers)
            instead[meeting.id] = [call, *results, whole, token]
        after = [start, *(new for i in before for new in instead.get(i.id, [i]))]
        return _operands_first(after), token

    def _place(self, instruction: hlo.Instruction) -> int | None:
        """Its number among the calls of a program, None if it meets nobody."""
        if instruction.opcode in COLLECTIVES:
            return _UNKNOWN
        if instruction.opcode != "call" or not self.meets(instruction.called[0]):
            return None
        (name,) = protos.inside(self._found[instruction.called[0]].head, hlo.NAME)
        place = _PLACE.match(bytes(name))
        return int(place[1]) if place else _UNKNOWN

    def _alone(self, collective: hlo.Instruction, operands: Sequence[bytes]) -> int:
        """A computation with a collective and nothing else."""
        parameters = [
            self._ids.parameter(i, shape) for i, shape in enumerate([*operands, hlo.TOKEN])
        ]
        *inputs, token = parameters
        numbers = dict(zip(collective.operands, (i.id for i in inputs), strict=True))
        inner = hlo.renumbered(collective, {**numbers, collective.id: self._ids.next()})
        return self._finished([*parameters, inner], inner, token)

    def _finished(
        self, instructions: list[hlo.Instruction], result: hlo.Instruction, token: hlo.Instruction
    ) -> int:
        """A new computation that returns the result, or its elements, and the token."""
        results = self._ids.taken_apart(result) if hlo.is_tuple(result.shape) else []
        every = [*(results or [result]), token]
        root = self._ids.new("tuple", hlo.tuple_of([i.shape for i in every]), [i.id for i in every])
        number = self._ids.next()
        name = f"ordered.{number}"
        self._found[number] = hlo.made_computation(name, number, [*instructions, *results, root])
        return number


def _by_place(
    instructions: Sequence[tuple[hlo.Instruction, int | None]],
) -> list[hlo.Instruction]:
    """Those that have a place, by that; but none before what it depends on.

    One whose place is unknown comes after what stands before it.
    """
    found: list[hlo.Instruction] = []
    keys: list[tuple[int, int]] = []
    needs: list[int] = []  # of each those that must come before, as bits
    behind: dict[int, int] = {}  # the same of every value
    last = _UNKNOWN
    for instruction, place in instructions:
        before = 0
        for operand in instruction.operands:
            before |= behind[operand]
        if place is not None:
            last = last if place == _UNKNOWN else place
            keys.append((last, len(found)))
            needs.append(before)
            before |= 1 << len(found)
            found.append(instruction)
        behind[instruction.id] = before
    if keys == sorted(keys):
        return found
    order, done, waiting = [], 0, [(key, i) for i, key in enumerate(keys)]
    while waiting:
        key, i = min(w for w in waiting if needs[w[1]] & ~done == 0)
        waiting.remove((key, i))
        order.append(found[i])
        done |= 1 << i
    return order


def _operands_first(instructions: list[hlo.Instruction]) -> list[hlo.Instruction]:
    """The instructions, moved where that is needed."""
    by_id = {i.id: i for i in instructions}
    order: dict[int, hlo.Instruction] = {}
    for instruction in instructions:
        stack = [instruction]
        while stack:
            missing = [by_id[o] for o in stack[-1].operands if o not in order]
            if missing and stack[-1].id not in order:
                stack += missing[::-1]
            else:
                done = stack.pop()
                order.setdefault(done.id, done)
    return list(order.values())
