"""Two reports side by side, collective by collective."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass

from rich.table import Table

from .record import Record
from .rows import Row
from .words import WIDTH, became, ranks, short, text_of


@dataclass(frozen=True)
class Pair:
    """A collective of either program; None where one of them has no such."""

    a: Row | None
    b: Row | None

    @property
    def differences(self) -> tuple[str, ...]:
        """The fields that are not the same."""
        if self.a is None or self.b is None:
            return ("only in one",)
        a, b = self.a, self.b
        return tuple(name for name in _COMPARED if getattr(a, name) != getattr(b, name))


_COMPARED = (
    "before",
    "after",
    "asynchronous",
    "operands",
    "groups",
    "pairs",
    "wire_bytes",
    "link_bytes",
    "rule",
    "beside",
)


@dataclass(frozen=True)
class Comparison:
    """What two programs have of collectives."""

    a: Record
    b: Record
    pairs: tuple[Pair, ...]

    @property
    def equal(self) -> bool:
        """Whether the collectives are the same, in what is compared."""
        return not any(pair.differences for pair in self.pairs)

    def to_json(self) -> str:
        """Both reports' rows, pair by pair, for programs."""
        pairs = [
            {
                "a": pair.a and asdict(pair.a),
                "b": pair.b and asdict(pair.b),
                "differences": pair.differences,
            }
            for pair in self.pairs
        ]
        found = {"a": _titles(self.a), "b": _titles(self.b), "equal": self.equal, "pairs": pairs}
        return json.dumps(found, indent=2)

    def to_text(self, width: int = WIDTH) -> str:
        """A table, for people."""
        return text_of(self.table(), width)

    def table(self) -> Table:
        """The pairs, for a terminal."""
        total = self.b.wire_bytes - self.a.wire_bytes
        world = max(self.a.world, self.b.world)
        table = Table(
            title="\n".join(
                f"{side}: {report.title}, {report.world} ranks"
                for side, report in (("A", self.a), ("B", self.b))
            ),
            caption="equal" if self.equal else f"{total:+,} bytes received by a rank in B",
        )
        for heading in ("A", "B", "operands", "groups", "differs in"):
            table.add_column(heading, overflow="fold")
        table.add_column("on the wire", justify="right")
        for pair in self.pairs:
            row = pair.a or pair.b
            assert row is not None
            a, b = (one.wire_bytes if one else 0 for one in (pair.a, pair.b))
            table.add_row(
                became(pair.a) if pair.a else "-",
                became(pair.b) if pair.b else "-",
                _both(pair, lambda one: short(one.operands)),
                _both(pair, lambda one: ranks(one, world)),
                ", ".join(pair.differences),
                f"{a:,}" if a == b else f"{a:,} / {b:,}",
            )
        return table


def compare(a: Record, b: Record) -> Comparison:
    """Pairs what is the same first, then what was issued alike: in order among equals."""
    pairs: dict[int, int] = {}  # places in a and b
    for key in (_exactly, _as_issued, _kind):
        _pair(a.rows, b.rows, key, pairs)
    made = [Pair(row, b.rows[pairs[i]] if i in pairs else None) for i, row in enumerate(a.rows)]
    taken = set(pairs.values())
    made += [Pair(None, row) for i, row in enumerate(b.rows) if i not in taken]
    return Comparison(a, b, tuple(made))


def compare_all(a: Sequence[Record], b: Sequence[Record]) -> list[Comparison]:
    """Programs of two dumps: by their names, and in order where those are not the same."""
    left = list(b)
    made = []
    for report in a:
        name = _plain(report.module)
        other = next((one for one in left if _plain(one.module) == name), left[0] if left else None)
        if other is not None:
            left.remove(other)
        made.append(compare(report, other or _nothing(report)))
    return made + [compare(_nothing(report), report) for report in left]


def _nothing(like: Record) -> Record:
    return Record("nothing", like.target, like.world, ())


def _plain(module: str) -> str:
    """A module's name without its number: "module_0003.step" and "module_0007.step" are alike."""
    head, _, name = module.partition(".")
    return name if head.startswith("module_") and name else module


def _pair(
    a: Sequence[Row], b: Sequence[Row], key: Callable[[Row], Hashable], pairs: dict[int, int]
) -> None:
    taken = set(pairs.values())
    waiting: dict[Hashable, deque[int]] = defaultdict(deque)
    for i, row in enumerate(b):
        if i not in taken:
            waiting[key(row)].append(i)
    for i, row in enumerate(a):
        if i not in pairs and (found := waiting[key(row)]):
            pairs[i] = found.popleft()


def _exactly(row: Row) -> Hashable:
    return (row.before, row.after, row.operands, row.groups, row.pairs, row.file, row.line)


def _as_issued(row: Row) -> Hashable:
    return (row.call or row.before, row.file, row.line)


def _kind(row: Row) -> Hashable:
    return row.before or (row.after,)


def _both(pair: Pair, text: Callable[[Row], str]) -> str:
    texts = [text(row) for row in (pair.a, pair.b) if row is not None]
    return " / ".join(key for key, _ in itertools.groupby(texts))


def _titles(report: Record) -> dict[str, object]:
    return {"module": report.module, "target": report.target, "world": report.world}
