"""The order of collectives in a program: that in which its rank has traced them.

Each rank traces a program of its own, and these may differ: a rank's number is in it, or a scalar
of 0 or 1, which torch_xla makes a constant, or its results are used in another order. Of different
programs XLA:CPU schedules independent collectives in different orders, and the all_gather of a
constant it folds away. Then ranks wait for each other, or get wrong numbers. So each collective
stands in a computation that is not inlined, and a tiny token goes from one to the next, as it does
on threads (docs/spec.md, Ordering). It goes into what is called, but not into loops and branches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from . import protos

COLLECTIVES = frozenset(
    {
        *("all-gather", "all-reduce", "all-to-all", "collective-broadcast", "collective-permute"),
        *("ragged-all-to-all", "reduce-scatter"),
    }
)

# Fields of HloModuleProto, HloComputationProto, HloInstructionProto, ShapeProto, ProgramShapeProto.
_COMPUTATIONS, _ENTRY_ID = 3, 6
_NAME, _INSTRUCTIONS, _PROGRAM_SHAPE, _COMPUTATION_ID, _ROOT_ID = 1, 2, 4, 5, 6
_OPCODE, _SHAPE, _METADATA, _PARAMETER, _TUPLE_INDEX = 2, 3, 7, 9, 13
_ID, _OPERANDS, _CALLED = 35, 36, 38
_FRONTEND_ATTRIBUTES = 68
_ELEMENT_TYPE, _TUPLE_SHAPES, _LAYOUT = 2, 4, 5
_PARAMETERS, _RESULT, _PARAMETER_NAMES = 1, 2, 3
_TUPLE, _U32 = 13, 8

_TOKEN = protos.number_field(_ELEMENT_TYPE, _U32) + protos.bytes_field(_LAYOUT, b"")
_NOT_INLINED = protos.bytes_field(
    _FRONTEND_ATTRIBUTES,
    protos.bytes_field(1, protos.bytes_field(1, b"inlineable") + protos.bytes_field(2, b"false")),
)


class _Instruction(NamedTuple):
    raw: bytes
    id: int
    opcode: str
    shape: bytes
    operands: tuple[int, ...] = ()
    called: tuple[int, ...] = ()


class _Computation(NamedTuple):
    head: bytes  # all but its instructions
    root: int
    instructions: list[_Instruction]


def ordered(module: bytes) -> bytes:
    """A HloModuleProto with its collectives in order."""
    order = _Order(module)
    if not order.meets(order.entry):
        return module
    order.go_through_entry()
    return protos.without(module, _COMPUTATIONS) + b"".join(order.written(order.entry, set()))


class _Order:
    """Leads the token through the computations that have collectives."""

    def __init__(self, module: bytes) -> None:
        self._found = dict(map(_computation, protos.inside(module, _COMPUTATIONS)))
        self.entry = protos.number(module, _ENTRY_ID)
        self._last_id = max(i.id for c in self._found.values() for i in c.instructions)
        self._last_id = max(self._last_id, *self._found)
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
        head, _, instructions = self._found[computation]
        for instruction in instructions:
            for callee in instruction.called:
                yield from self.written(callee, done)
        body = b"".join(protos.bytes_field(_INSTRUCTIONS, i.raw) for i in instructions)
        yield protos.bytes_field(_COMPUTATIONS, head + body)

    def go_through_entry(self) -> None:
        """The token begins there, as something that is no constant."""
        token = self._new("replica-id", _TOKEN)
        old = self._found[self.entry]
        instructions, _ = self._lead(old.instructions, token)
        self._found[self.entry] = old._replace(instructions=instructions)

    def _through(self, computation: int) -> int:
        """One like it, which takes a token more, and returns it."""
        if computation not in self._led:
            _, root, before = self._found[computation]
            numbers = {i.id: self._next_id() for i in before}
            before = [_renumbered(i, numbers) for i in before]
            count = sum(i.opcode == "parameter" for i in before)
            instructions, token = self._lead(before, self._parameter(count, _TOKEN))
            result = next(i for i in instructions if i.id == numbers[root])
            self._led[computation] = self._finished(instructions, result, token)
        return self._led[computation]

    def _lead(
        self, before: list[_Instruction], token: _Instruction
    ) -> tuple[list[_Instruction], _Instruction]:
        """The instructions with the token through all that meet others, and the last token."""
        after = [token]
        shapes = {i.id: i.shape for i in before}
        for instruction in before:
            more = protos.only(instruction.raw, _METADATA)
            if instruction.opcode in COLLECTIVES:
                callee = self._alone(instruction, [shapes[i] for i in instruction.operands])
                more += _NOT_INLINED
            elif instruction.opcode == "call" and self.meets(instruction.called[0]):
                callee = self._through(instruction.called[0])
            else:
                after.append(instruction)
                continue
            shape = _tuple_of([*_elements(instruction.shape), _TOKEN])
            operands = (*instruction.operands, token.id)
            call = self._new("call", shape, operands, (callee,), more)
            *results, token = self._taken_apart(call)
            after += [call, *results, token]
            if _is_tuple(instruction.shape):
                ids = tuple(i.id for i in results)
                after.append(_made(instruction.id, "tuple", instruction.shape, ids))
            else:  # the users of the collective are those of its only result
                numbers = {results[0].id: instruction.id, call.id: call.id}
                after[-2] = _renumbered(results[0], numbers)
        return after, token

    def _alone(self, collective: _Instruction, operands: Sequence[bytes]) -> int:
        """A computation with a collective and nothing else."""
        parameters = [self._parameter(i, shape) for i, shape in enumerate([*operands, _TOKEN])]
        *inputs, token = parameters
        numbers = dict(zip(collective.operands, (i.id for i in inputs), strict=True))
        inner = _renumbered(collective, {**numbers, collective.id: self._next_id()})
        return self._finished([*parameters, inner], inner, token)

    def _finished(
        self, instructions: list[_Instruction], result: _Instruction, token: _Instruction
    ) -> int:
        """A new computation that returns the result, or its elements, and the token."""
        results = self._taken_apart(result) if _is_tuple(result.shape) else []
        every = [*(results or [result]), token]
        root = self._new("tuple", _tuple_of([i.shape for i in every]), [i.id for i in every])
        number = self._next_id()
        name = f"ordered.{number}".encode()
        shapes = [(_parameter_number(i), i.shape) for i in instructions if i.opcode == "parameter"]
        program = b"".join(
            protos.bytes_field(_PARAMETERS, shape)
            + protos.bytes_field(_PARAMETER_NAMES, b"p%d" % i)
            for i, shape in sorted(shapes)
        )
        head = protos.bytes_field(_NAME, name)
        head += protos.bytes_field(
            _PROGRAM_SHAPE, program + protos.bytes_field(_RESULT, root.shape)
        )
        head += protos.number_field(_COMPUTATION_ID, number)
        head += protos.number_field(_ROOT_ID, root.id)
        self._found[number] = _Computation(head, root.id, [*instructions, *results, root])
        return number

    def _taken_apart(self, value: _Instruction) -> list[_Instruction]:
        return [
            self._new(
                "get-tuple-element", shape, (value.id,), (), protos.number_field(_TUPLE_INDEX, i)
            )
            for i, shape in enumerate(_elements(value.shape))
        ]

    def _parameter(self, number: int, shape: bytes) -> _Instruction:
        return self._new("parameter", shape, (), (), protos.number_field(_PARAMETER, number))

    def _new(
        self,
        opcode: str,
        shape: bytes,
        operands: Sequence[int] = (),
        called: Sequence[int] = (),
        more: bytes = b"",
    ) -> _Instruction:
        return _made(self._next_id(), opcode, shape, operands, called, more)

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id


def _made(
    number: int,
    opcode: str,
    shape: bytes,
    operands: Sequence[int] = (),
    called: Sequence[int] = (),
    more: bytes = b"",
) -> _Instruction:
    raw = protos.bytes_field(_NAME, f"{opcode}.{number}".encode())
    raw += protos.bytes_field(_OPCODE, opcode.encode()) + protos.bytes_field(_SHAPE, shape)
    raw += protos.number_field(_ID, number) + protos.numbers_field(_OPERANDS, operands)
    raw += protos.numbers_field(_CALLED, called) + more
    return _Instruction(raw, number, opcode, shape, tuple(operands), tuple(called))


def _renumbered(instruction: _Instruction, numbers: Mapping[int, int]) -> _Instruction:
    number = numbers[instruction.id]
    operands = [numbers[i] for i in instruction.operands]
    raw = protos.without(instruction.raw, _NAME, _ID, _OPERANDS)
    raw += protos.bytes_field(_NAME, f"{instruction.opcode}.{number}".encode())
    raw += protos.number_field(_ID, number) + protos.numbers_field(_OPERANDS, operands)
    return instruction._replace(raw=raw, id=number, operands=tuple(operands))


def _computation(raw: memoryview) -> tuple[int, _Computation]:
    instructions = list(map(_instruction, protos.inside(raw, _INSTRUCTIONS)))
    head, root = protos.without(raw, _INSTRUCTIONS), protos.number(raw, _ROOT_ID)
    return protos.number(raw, _COMPUTATION_ID), _Computation(head, root, instructions)


def _instruction(raw: memoryview) -> _Instruction:
    (opcode,) = protos.inside(raw, _OPCODE)
    (shape,) = protos.inside(raw, _SHAPE)
    return _Instruction(
        bytes(raw),
        protos.number(raw, _ID),
        str(opcode, "ascii"),
        bytes(shape),
        tuple(protos.numbers_of(raw, _OPERANDS)),
        tuple(protos.numbers_of(raw, _CALLED)),
    )


def _parameter_number(instruction: _Instruction) -> int:
    return protos.number(instruction.raw, _PARAMETER)


def _is_tuple(shape: bytes) -> bool:
    return protos.number(shape, _ELEMENT_TYPE) == _TUPLE


def _elements(shape: bytes) -> list[bytes]:
    return list(map(bytes, protos.inside(shape, _TUPLE_SHAPES))) if _is_tuple(shape) else [shape]


def _tuple_of(shapes: Sequence[bytes]) -> bytes:
    elements = b"".join(protos.bytes_field(_TUPLE_SHAPES, shape) for shape in shapes)
    return protos.number_field(_ELEMENT_TYPE, _TUPLE) + elements
