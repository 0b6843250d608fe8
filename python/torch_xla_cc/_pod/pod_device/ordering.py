"""The order of collectives in a program: that in which torch_xla has written them.

Each rank traces a program of its own, and these may differ: a rank's number is in it, or a scalar
of 0 or 1, which torch_xla makes a constant. Of different programs XLA:CPU schedules independent
collectives in different orders, and the all_gather of a constant it folds away. Then ranks wait for
each other, or get wrong numbers. So each collective stands in a computation that is not inlined,
and a tiny token goes from one to the next, which each writes anew, as on threads (docs/spec.md,
Ordering). It goes into what is called, and into loops and branches, of which it is one more value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from . import hlo, mpi_types, protos
from .meetings import COLLECTIVES

_IMPATIENT = ("reduce-scatter",)  # in which gloo gives up on a rank that is 30 s late
_ENTERED = ("call", "while", "conditional")
_NOT_INLINED = protos.bytes_field(
    hlo.FRONTEND_ATTRIBUTES,
    protos.bytes_field(1, protos.bytes_field(1, b"inlineable") + protos.bytes_field(2, b"false")),
)


def ordered(module: bytes, *, patient: bool = True, by_names: bool = False) -> bytes:
    """A HloModuleProto with its collectives in order; if `patient`, of ranks that gloo gives up.

    `by_names`: XLA calls MPI's names, and they have the types that it gives to MPI.
    """
    order = _Order(module, _IMPATIENT if patient else (), by_names=by_names)
    if not order.meets(order.entry):
        return module
    order.go_through_entry()
    return protos.without(module, hlo.COMPUTATIONS) + b"".join(order.written(order.entry, set()))


class _Order:
    """Leads the token through the computations that have collectives."""

    def __init__(self, module: bytes, impatient: Sequence[str], *, by_names: bool) -> None:
        self._impatient, self._by_names = impatient, by_names
        self._found = dict(map(hlo.computation, protos.inside(module, hlo.COMPUTATIONS)))
        self.entry = protos.number(module, hlo.ENTRY_ID)
        self._ids = hlo.Ids(self._found)
        self._meets: dict[int, bool] = {}
        self._led: dict[int, int] = {}  # by what was called: what is called now
        self._within_led: dict[tuple[int, bool], int] = {}  # of loops and branches

    def meets(self, computation: int) -> bool:
        """Whether there is a collective in it, or in one that it calls."""
        if computation not in self._meets:
            self._meets[computation] = any(
                i.opcode in COLLECTIVES or (i.opcode in _ENTERED and any(map(self.meets, i.called)))
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
        self._found[self.entry] = old._replace(instructions=[token, *instructions])

    def _through(self, computation: int) -> int:
        """One like it, which takes a token more, and returns it."""
        if computation not in self._led:
            _, root, before = self._found[computation]
            numbers = {i.id: self._ids.next() for i in before}
            before = [hlo.renumbered(i, numbers) for i in before]
            count = sum(i.opcode == "parameter" for i in before)
            given = self._ids.parameter(count, hlo.TOKEN)
            instructions, token = self._lead(before, given)
            result = next(i for i in instructions if i.id == numbers[root])
            self._led[computation] = self._finished([given, *instructions], result, token)
        return self._led[computation]

    def _within(self, computation: int, *, leads: bool) -> int:
        """One like it, whose only parameter has a token as its last element, and its result too.

        The result of one that does not lead it on is what it was: of a loop's condition.
        """
        if (computation, leads) not in self._within_led:
            _, root, before = self._found[computation]
            numbers = {i.id: self._ids.next() for i in before}
            old, *rest = sorted(
                (hlo.renumbered(i, numbers) for i in before), key=lambda i: i.opcode != "parameter"
            )
            given = self._ids.parameter(0, hlo.tuple_of([*hlo.elements(old.shape), hlo.TOKEN]))
            start, token = self._untied(given, old)
            instructions, led = self._lead([*start, *rest], token)
            if led is token and leads:
                # XLA takes out of a loop what it does not change; its condition may meet others.
                led = self._ids.new("not", hlo.TOKEN, [token.id])
                instructions.append(led)
            instructions.insert(0, given)
            result = next(i for i in instructions if i.id == numbers[root])
            if leads:
                made = self._finished(instructions, result, led)
            else:
                made = self._named(instructions, result)
            self._within_led[computation, leads] = made
        return self._within_led[computation, leads]

    def _untied(
        self, tied: hlo.Instruction, old: hlo.Instruction
    ) -> tuple[list[hlo.Instruction], hlo.Instruction]:
        """What makes `old`, by its id, and the token, of a tuple of both; the token is the last."""
        *parts, token = self._ids.taken_apart(tied)
        if hlo.is_tuple(old.shape):
            whole = hlo.made(old.id, "tuple", old.shape, [i.id for i in parts])
            return [*parts, whole, token], token
        return [hlo.renumbered(parts[0], {parts[0].id: old.id, tied.id: tied.id}), token], token

    def _tied(
        self, value: int, shape: bytes, token: hlo.Instruction
    ) -> tuple[list[hlo.Instruction], int]:
        """What makes a tuple of a value, or its elements, and the token; and that tuple's id."""
        parts = []
        ids = [value]
        if hlo.is_tuple(shape):
            parts = self._ids.taken_apart(hlo.Instruction(b"", value, "", shape))
            ids = [i.id for i in parts]
        shapes = [*hlo.elements(shape), hlo.TOKEN]
        tied = self._ids.new("tuple", hlo.tuple_of(shapes), [*ids, token.id])
        return [*parts, tied], tied.id

    def _enter(
        self, old: hlo.Instruction, shapes: Mapping[int, bytes], token: hlo.Instruction
    ) -> list[hlo.Instruction]:
        """A loop or branches, with the token as one more value; it is the last of these."""
        first = old.opcode == "conditional"  # what decides comes before what the branches take
        made: list[hlo.Instruction] = []
        operands = list(old.operands[:first])
        for value in old.operands[first:]:
            more, tied = self._tied(value, shapes[value], token)
            made += more
            operands.append(tied)
        if old.opcode == "while":
            body, condition = old.called
            called = [self._within(body, leads=True), self._within(condition, leads=False)]
        else:
            called = [self._within(branch, leads=True) for branch in old.called]
        shape = hlo.tuple_of([*hlo.elements(old.shape), hlo.TOKEN])
        again = self._ids.again(old, shape, operands, called)
        after, _ = self._untied(again, old)
        return [*made, again, *after]

    def _lead(
        self, before: list[hlo.Instruction], start: hlo.Instruction
    ) -> tuple[list[hlo.Instruction], hlo.Instruction]:
        """The instructions with the token through all that meet others, and the last token."""
        token = start
        after = []
        shapes = {i.id: i.shape for i in before}
        for instruction in before:
            more = b""
            operands = instruction.operands
            if instruction.opcode in COLLECTIVES:
                if instruction.opcode in self._impatient:
                    meets = (self._met(instruction),)
                    token = self._ids.new("call", hlo.TOKEN, [token.id], meets, _NOT_INLINED)
                    after.append(token)
                # XLA would move constants into the computation, and fold it there.
                barriers = [self._ids.new("opt-barrier", shapes[i], [i]) for i in operands]
                after += barriers
                operands = tuple(i.id for i in barriers)
                callee = self._alone(instruction, [shapes[i] for i in instruction.operands])
                more = _NOT_INLINED
            elif not (instruction.opcode in _ENTERED and any(map(self.meets, instruction.called))):
                after.append(instruction)
                continue
            elif instruction.opcode == "call":
                callee = self._through(instruction.called[0])
                # Some of ours are not inlined: what they give back, a token, keeps them.
                more = protos.only(instruction.raw, hlo.FRONTEND_ATTRIBUTES)
            else:
                after += self._enter(instruction, shapes, token)
                token = after[-1]
                continue
            shape = hlo.tuple_of([*hlo.elements(instruction.shape), hlo.TOKEN])
            operands = (*operands, token.id)
            more += protos.only(instruction.raw, hlo.METADATA)
            call = self._ids.new("call", shape, operands, (callee,), more)
            *results, token = self._ids.taken_apart(call)
            if hlo.is_tuple(instruction.shape):
                ids = tuple(i.id for i in results)
                whole = hlo.made(instruction.id, "tuple", instruction.shape, ids)
            else:  # the users of the collective are those of its only result
                numbers = {results[0].id: instruction.id, call.id: call.id}
                results, whole = [], hlo.renumbered(results[0], numbers)
            after += [call, *results, whole, token]
        return after, token

    def _met(self, collective: hlo.Instruction) -> int:
        """A computation in which those that are in a collective wait for each other, patiently."""
        x, y = (self._ids.parameter(i, hlo.TOKEN) for i in range(2))
        larger = self._ids.new("maximum", hlo.TOKEN, [x.id, y.id])
        reduction = self._named([x, y, larger], larger)
        token = self._ids.parameter(0, hlo.TOKEN)
        groups = protos.only(collective.raw, *hlo.REPLICA_GROUPS)
        met = self._ids.new("all-reduce", hlo.TOKEN, [token.id], [reduction], groups)
        return self._named([token, met], met)

    def _alone(self, collective: hlo.Instruction, operands: Sequence[bytes]) -> int:
        """A computation with a collective and nothing else."""
        parameters = [
            self._ids.parameter(i, shape) for i, shape in enumerate([*operands, hlo.TOKEN])
        ]
        *inputs, token = parameters
        # XLA:CPU runs a call that writes nothing of what the next reads while that is under way.
        written = self._ids.new("not", hlo.TOKEN, [token.id])
        parameters.append(written)
        if self._by_names:
            made = mpi_types.converted(self._ids, collective, inputs, self._retyped)
            if made is not None:
                return self._returning([*parameters, *made.instructions], made.results, written)
        numbers = dict(zip(collective.operands, (i.id for i in inputs), strict=True))
        inner = hlo.renumbered(collective, {**numbers, collective.id: self._ids.next()})
        return self._finished([*parameters, inner], inner, written)

    def _finished(
        self, instructions: list[hlo.Instruction], result: hlo.Instruction, token: hlo.Instruction
    ) -> int:
        """A new computation that returns the result, or its elements, and the token."""
        parts = self._ids.taken_apart(result) if hlo.is_tuple(result.shape) else []
        return self._returning([*instructions, *parts], parts or [result], token)

    def _returning(
        self,
        instructions: list[hlo.Instruction],
        results: list[hlo.Instruction],
        token: hlo.Instruction,
    ) -> int:
        """A new computation that returns these and the token."""
        every = [*results, token]
        root = self._ids.new("tuple", hlo.tuple_of([i.shape for i in every]), [i.id for i in every])
        return self._named([*instructions, root], root)

    def _retyped(self, computation: int, kind: int) -> int:
        """One like it, of another type."""
        _, root, before = self._found[computation]
        numbers = {i.id: self._ids.next() for i in before}
        made = [hlo.retyped(hlo.renumbered(i, numbers), kind) for i in before]
        return self._named(made, next(i for i in made if i.id == numbers[root]))

    def _named(self, instructions: list[hlo.Instruction], root: hlo.Instruction) -> int:
        """A new computation that returns one of them."""
        number = self._ids.next()
        self._found[number] = hlo.made_computation(f"ordered.{number}", number, instructions, root)
        return number
