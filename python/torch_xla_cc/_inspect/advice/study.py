"""A piece of advice, and the program that it is given on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ..._hlo import flow, traffic
from ..._hlo.collectives import Collective, finder
from ..._hlo.text import Computation
from ..rows import how

# Moving so much takes about as long as a collective takes to start: less is not worth a change.
LEAST_BYTES = 64 << 10

_REDUCTIONS = {
    "add": "sum",
    "multiply": "product",
    "maximum": "max",
    "minimum": "min",
    "and": "and",
    "or": "or",
    "xor": "xor",
}
_Key = tuple[object, ...]


@dataclass(frozen=True)
class Advice:
    """What could be written in another way, and what that saves."""

    kind: str
    text: str  # what, why, and what to write instead
    lines: tuple[tuple[str, int], ...]  # file and line of each collective that it is about
    saved_bytes: int
    # Which bytes: those that come to a rank, or those that a rank reads and writes.
    saved_on: Literal["wire", "memory"] = "wire"
    saved_starts: int = 0  # of collectives

    def __str__(self) -> str:
        """Readable."""
        return f"{self.kind}: {self.text} {self.saves}"

    @property
    def saves(self) -> str:
        """What it saves, as a sentence."""
        where = "on the wire" if self.saved_on == "wire" else "read and written in memory"
        starts = f" and {self.saved_starts} starts" if self.saved_starts > 1 else ""
        starts = " and a start" if self.saved_starts == 1 else starts
        return f"Saves {self.saved_bytes:,} bytes {where}{starts}."


@dataclass(eq=False, slots=True)
class Issued:
    """A collective as it was traced."""

    value: flow.Value
    collective: Collective
    call: str  # with its attributes; empty if torch_xla_cc did not make it

    @property
    def opcode(self) -> str:
        return self.collective.opcode

    @property
    def line(self) -> tuple[str, int]:
        return self.collective.source.file, self.collective.source.line


class Study:
    """A program before and after a compiler, for advice.

    `issued` are the collectives that stand in the compiled program as they were traced: no advice
    is given on what the compiler has mended. Those of a fallback are not among them: nobody has
    written them.
    """

    def __init__(
        self, before: Sequence[Computation], after: Sequence[Computation], target: str, world: int
    ) -> None:
        self.target = target  # "" if it is not known
        self.world = world
        self.computations_after = after
        self._roots = {one.name: one.root for one in before}
        self.values, self.values_after = flow.values(before), flow.values(after)
        traced = _collectives(self.values, before)
        self.compiled = _collectives(self.values_after, after)
        self._counts_before = Counter(key for _, one in traced for key in self._keys(one))
        self._counts_after = Counter(key for _, one in self.compiled for key in self._keys(one))
        self._whole_before = Counter(tuple(self._keys(one)) for _, one in traced)
        self._whole_after = Counter(tuple(self._keys(one)) for _, one in self.compiled)
        self.issued = list(self._issued(traced))

    def _issued(self, traced: Iterable[tuple[flow.Value, Collective]]) -> Iterator[Issued]:
        for value, one in traced:
            call, rule, _ = how(one.source)
            if rule != "fallback" and self._stands(one):
                yield Issued(value, one, call if rule else "")

    def of(self, opcode: str) -> list[Issued]:
        """Those with one operand."""
        return [
            one for one in self.issued if one.opcode == opcode and len(one.collective.operands) == 1
        ]

    def groups(self, one: Issued) -> tuple[tuple[int, ...], ...]:
        """Its groups, written out."""
        return traffic.participants(one.collective, self.world)

    def members(self, one: Issued) -> int:
        """The size of its groups; 0 if they are of several sizes, or one rank is none."""
        sizes = {len(group) for group in self.groups(one)}
        return sizes.pop() if len(sizes) == 1 and sizes != {1} else 0

    def received(self, one: Issued) -> int:
        """Bytes that come to a rank."""
        return round(traffic.received(one.collective, self.world))

    def reduction(self, one: Issued) -> str:
        """How it reduces; empty if it does not, or in no way that has a name."""
        called = one.value.instruction.called
        root = self._roots.get(called[0]) if called else None
        return _REDUCTIONS.get(root.opcode, "") if root is not None else ""

    def combined(self, one: Issued) -> bool:
        """Whether the compiler has combined some that are as this one."""
        whole = tuple(self._keys(one.collective))
        return self._whole_after[whole] != self._whole_before[whole]

    def _stands(self, one: Collective) -> bool:
        """By number: what a compiler adds, combines or changes cannot be told apart otherwise."""
        return all(self._counts_before[key] == self._counts_after[key] for key in self._keys(one))

    def _keys(self, one: Collective) -> list[_Key]:
        """A compiler may drop dimensions of size one, and combine: it is operands that count."""
        kind = one.opcode, traffic.participants(one, self.world), one.pairs or ()
        return [(*kind, array.dtype, array.elements) for array in one.operands]


def _collectives(
    values: Iterable[flow.Value], computations: Iterable[Computation]
) -> list[tuple[flow.Value, Collective]]:
    found = {one.first: one for one in finder(computations).found()}
    return [(value, found[value.instruction]) for value in values if value.instruction in found]
