"""A program of one rank without its peers, as if each of them had passed what this one did.

What the ranks do with that may differ, as where only the root's part of a sum counts. So it is
followed for all of them at once, from collective to collective, up to what comes to this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import protobuf
from .proto import groups_of
from .writer import Writer

_Instruction = Any  # a HloInstructionProto
# What an instruction is on each replica. Where it is the same on all, there is one.
_Values = list[_Instruction]


def without_peers(module: protobuf.Message, rank: int, world: int) -> protobuf.Message:
    """A copy of a HloModuleProto that one device runs: no collective is left in its entry.

    Where a ragged-all-to-all has its sizes only another rank knows: what it writes to stays as it
    was.
    """
    made = protobuf.HloModuleProto()
    made.CopyFrom(module)
    computations = {one.id: one for one in made.computations}
    entry = computations[made.entry_computation_id]
    ranks = _Ranks(Writer(last_number(made)), computations, world)
    root = ranks.results(entry, [])[rank % world]
    ranks.writer.write(entry, root)
    keep_called(made)
    return made


def last_number(module: protobuf.Message) -> int:
    """The highest: computations and instructions are numbered together."""
    numbers: list[int] = []
    for one in module.computations:
        numbers += [one.id, *(x.id for x in one.instructions)]
    return max(numbers)


def keep_called(module: protobuf.Message) -> None:
    """Drop what nothing calls any more: callers stand behind what they call."""
    called = {module.entry_computation_id}
    kept = []
    for computation in reversed(module.computations):
        if computation.id in called:
            kept.append(computation.SerializeToString())
            called.update(x for one in computation.instructions for x in one.called_computation_ids)
    del module.computations[:]
    module.computations.extend(map(protobuf.HloComputationProto.FromString, reversed(kept)))


class _Ranks:
    """All ranks of a world, as they run one program on the same parameters."""

    def __init__(self, writer: Writer, computations: dict[int, Any], world: int) -> None:
        self.writer = writer
        self._computations = computations
        self._world = world

    def results(self, computation: protobuf.Message, parameters: Sequence[_Values]) -> _Values:
        """Of each rank; parameters of its own if there are none."""
        values: dict[int, _Values] = {}
        for one in computation.instructions:
            operands = [values[number] for number in one.operand_ids]
            values[one.id] = self._values(one, operands, parameters)
        return self._each(values[computation.root_id])

    def _values(
        self, one: _Instruction, operands: list[_Values], parameters: Sequence[_Values]
    ) -> _Values:
        if one.opcode == "parameter" and parameters:
            number: int = one.parameter_number
            return parameters[number]
        if one.opcode == "call":
            (called,) = one.called_computation_ids
            return _unique(self.results(self._computations[called], operands))
        if one.opcode == "replica-id":
            return [self.writer.number(one.shape, rank) for rank in range(self._world)]
        if one.opcode in _COLLECTIVES:
            of_ranks = [self._each(values) for values in operands]
            give = _COLLECTIVES[one.opcode]
            return _unique([give(self, one, of_ranks, rank) for rank in range(self._world)])
        count = max(map(len, operands), default=1)
        return _unique(
            [self.writer.again(one, [x[rank % len(x)] for x in operands]) for rank in range(count)]
        )

    def _each(self, values: _Values) -> _Values:
        return values if len(values) == self._world else values * self._world

    def _given(self, one: _Instruction, parts: Sequence[_Instruction]) -> _Instruction:
        """What a collective gives, of what comes of each operand."""
        return self.writer.tuple(one.shape, parts) if len(one.shape.tuple_shapes) else parts[0]

    def _group(self, one: _Instruction, rank: int) -> tuple[int, ...]:
        """The ranks of this one's group, itself alone where it is in none."""
        groups = groups_of(one) or (tuple(range(self._world)),)
        return next((group for group in groups if rank in group), (rank,))

    # What each collective gives a rank. Operands are those of each rank.

    def all_reduce(self, one: _Instruction, operands: list[_Values], rank: int) -> _Instruction:
        group, by = self._group(one, rank), one.called_computation_ids[0]
        return self._given(
            one, [self.writer.reduced([x[member] for member in group], by) for x in operands]
        )

    def all_gather(self, one: _Instruction, operands: list[_Values], rank: int) -> _Instruction:
        group, dim = self._group(one, rank), one.dimensions[0]
        return self._given(
            one, [self.writer.joined([x[member] for member in group], dim) for x in operands]
        )

    def reduce_scatter(self, one: _Instruction, operands: list[_Values], rank: int) -> _Instruction:
        group, by = self._group(one, rank), one.called_computation_ids[0]
        where = one.dimensions[0], group.index(rank), len(group)
        wholes = [self.writer.reduced([x[member] for member in group], by) for x in operands]
        return self._given(one, [self.writer.part(x, *where) for x in wholes])

    def all_to_all(self, one: _Instruction, operands: list[_Values], rank: int) -> _Instruction:
        group = self._group(one, rank)
        place = group.index(rank)
        if not one.dimensions:  # an operand for each rank
            return self._given(one, [operands[place][member] for member in group])
        dim = one.dimensions[0]
        parts = [[self.writer.part(x[m], dim, place, len(group)) for m in group] for x in operands]
        return self._given(one, [self.writer.joined(some, dim) for some in parts])

    def permute(self, one: _Instruction, operands: list[_Values], rank: int) -> _Instruction:
        sources = [pair.source for pair in one.source_target_pairs if pair.target == rank]
        return self._given(
            one, [x[sources[0]] if sources else self.writer.zeros(x[rank].shape) for x in operands]
        )

    def broadcast(self, one: _Instruction, operands: list[_Values], rank: int) -> _Instruction:
        roots = [group[0] for group in groups_of(one) if rank in group]
        return self._given(
            one, [x[roots[0]] if roots else self.writer.zeros(x[rank].shape) for x in operands]
        )

    def ragged_all_to_all(
        self, _: _Instruction, operands: list[_Values], rank: int
    ) -> _Instruction:
        return operands[1][rank]

    def token(self, _: _Instruction, operands: list[_Values], rank: int) -> _Instruction:
        """What is left of a send, a recv, or the end of a send: their last operand."""
        return operands[-1][rank]

    def recv_done(self, one: _Instruction, operands: list[_Values], rank: int) -> _Instruction:
        received = self.writer.zeros(one.shape.tuple_shapes[0])
        return self.writer.tuple(one.shape, [received, operands[0][rank]])


def _unique(values: _Values) -> _Values:
    return values[:1] if all(x is values[0] for x in values) else values


_COLLECTIVES: dict[str, Callable[[_Ranks, _Instruction, list[_Values], int], _Instruction]] = {
    "all-gather": _Ranks.all_gather,
    "all-reduce": _Ranks.all_reduce,
    "all-to-all": _Ranks.all_to_all,
    "collective-broadcast": _Ranks.broadcast,
    "collective-permute": _Ranks.permute,
    "ragged-all-to-all": _Ranks.ragged_all_to_all,
    "recv": _Ranks.token,
    "recv-done": _Ranks.recv_done,
    "reduce-scatter": _Ranks.reduce_scatter,
    "send": _Ranks.token,
    "send-done": _Ranks.token,
}
