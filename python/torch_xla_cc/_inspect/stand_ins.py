"""A traced step that reads: what of it is for a target that is not here runs without its peers.

In the graph stands what the CPU can run, of the same shapes, and in the program that is reported
what the target gets.
"""

from __future__ import annotations

import re

from .._hlo import protobuf
from .._hlo.without_peers import keep_called, last_number, without_peers
from .._runtime.private import XLAC

_NAME = "stand_in_"  # of the entry: its number, and torch_xla's of computations behind a point
_NUMBERED = re.compile(rf"{_NAME}(\d+)\.")


class Alone:
    """Stands in for what one rank of a world traces, whose peers do not exist."""

    def __init__(self, rank: int, world: int) -> None:
        self._rank = rank
        self._world = world
        self._known: dict[bytes, tuple[int, object]] = {}

    def of(self, module: bytes) -> object:
        """The computation for a serialized HloModuleProto."""
        if module not in self._known:
            number = len(self._known)
            self._known[module] = number, self._computation(module, number)
        return self._known[module][1]

    def _computation(self, module: bytes, number: int) -> object:
        alone = without_peers(protobuf.HloModuleProto.FromString(module), self._rank, self._world)
        name = f"{_NAME}{number}.{alone.entry_computation_id}"
        alone.entry_computation_name = name
        for computation in alone.computations:
            if computation.id == alone.entry_computation_id:
                computation.name = name
        return XLAC._xla_op_computation_from_module_proto(name, alone.SerializeToString())

    def undone(self, traced: bytes) -> bytes:
        """The traced module, with the modules that they stand for."""
        module = protobuf.HloModuleProto.FromString(traced)
        modules = [protobuf.HloModuleProto.FromString(one) for one in self._known]
        computations = []
        numbers = _Numbers(module)
        for computation in module.computations:
            found = _NUMBERED.match(computation.name)
            if found:
                computations += numbers.taken_in(modules[int(found[1])], computation.id)
            else:
                computations.append(computation)
        written = [one.SerializeToString() for one in computations]
        del module.computations[:]
        module.computations.extend(map(protobuf.HloComputationProto.FromString, written))
        keep_called(module)
        return bytes(module.SerializeToString())


class _Numbers:
    """Of computations and instructions: each has its own in a module."""

    def __init__(self, module: protobuf.Message) -> None:
        self._last = last_number(module)

    def _next(self) -> int:
        self._last += 1
        return self._last

    def taken_in(self, module: protobuf.Message, number: int) -> list[protobuf.Message]:
        """The computations of a module with numbers of their own; its entry has `number`."""
        copy = protobuf.HloModuleProto()
        copy.CopyFrom(module)
        own = {one.id: self._next() for one in copy.computations}
        own[copy.entry_computation_id] = number
        for computation in copy.computations:
            computation.id = own[computation.id]
            computation.name = f"{computation.name.partition('.')[0]}.{computation.id}"
            of = {x.id: self._next() for x in computation.instructions}
            computation.root_id = of[computation.root_id]
            for one in computation.instructions:
                one.id = of[one.id]
                one.name = f"{one.name.partition('.')[0]}.{one.id}"
                for numbers, known in (
                    (one.operand_ids, of),
                    (one.control_predecessor_ids, of),
                    (one.called_computation_ids, own),
                ):
                    numbers[:] = [known[x] for x in numbers]
        return list(copy.computations)
