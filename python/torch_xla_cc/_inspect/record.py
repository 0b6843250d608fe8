"""What is reported of one program's collectives: as a record, text and JSON."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from pathlib import PurePath

from rich.table import Table
from rich.text import Text

from .._hlo.traffic import flows
from . import advice
from .rows import Row
from .schedule import Part
from .summary import Summary, summary
from .words import WIDTH, became, overlap, places, ranks, short, text_of

VERSION = 1  # of the JSON


@dataclasses.dataclass(frozen=True)
class Record:
    """The collectives of one program for one target: Report without what is made of reports."""

    module: str
    target: str  # "" if it is not known
    world: int  # ranks
    rows: tuple[Row, ...]
    # The compiler's figures in bytes, if it gave any: arguments, outputs, temporaries.
    memory: Mapping[str, int] = dataclasses.field(default_factory=dict)
    failure: str = ""  # why there is no compiled program
    # How many instructions each computation has that has collectives.
    lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)
    advice: tuple[advice.Advice, ...] = ()
    link_bytes: int = 0  # over the link that carries most, of all collectives together
    fewest_link_bytes: int = 0  # of what was called, by the same model
    # What the compiled program does in its order, around its collectives.
    schedule: tuple[Part, ...] = ()
    times: int = 1  # that it runs in the step; the figures are of one

    @property
    def counts(self) -> Counter[str]:
        """How often the compiled program has each opcode."""
        return Counter(row.after for row in self.rows if row.compiled)

    @property
    def wire_bytes(self) -> int:
        """The bytes that a rank receives, of all collectives together."""
        return sum(row.wire_bytes for row in self.rows)

    def traffic(self) -> list[list[int]]:
        """Bytes from each rank, a row, to each other, a column."""
        matrix = [[Fraction(0)] * self.world for _ in range(self.world)]
        for row in self.rows:
            if row.opcode:
                for source, target, amount in flows(row, self.world):
                    matrix[source][target] += amount
        return [[round(amount) for amount in line] for line in matrix]

    def to_json(self) -> str:
        """Everything that the report has, for other programs to read."""
        fields = dataclasses.asdict(self)
        made = {"summary": dataclasses.asdict(self.summary), "wire_bytes": self.wire_bytes}
        return json.dumps({"version": VERSION, **fields, **made}, indent=2)

    @property
    def summary(self) -> Summary:
        """What became of all of them together."""
        return summary(self.rows, self.link_bytes, self.fewest_link_bytes)

    def _caption(self) -> str:
        if self.failure:
            return f"not compiled: {self.failure}"
        caption = f"{len(self.rows)} collectives; {self.wire_bytes:,} bytes received by a rank"
        if self.memory:
            caption += "; memory: " + ", ".join(f"{k} {n:,}" for k, n in self.memory.items() if n)
        return caption

    @property
    def title(self) -> str:
        """What it is of, and for."""
        return self.module + (f" for {self.target}" if self.target else "")

    @property
    def first_lines(self) -> list[str]:
        """What became of all together; without a compiled program its bytes alone."""
        if not self.rows:
            return []
        return [f"as traced: {self.summary.bytes_line}"] if self.failure else self.summary.lines()

    def to_text(self, width: int = WIDTH) -> str:
        """A table, for people."""
        return text_of(self.table(), width)

    def table(self) -> Table:
        """The rows, for a terminal."""
        caption = "\n".join([self._caption(), *map(_advised, self.advice)])
        # Text: what is in brackets is no markup.
        table = Table(
            title=Text("\n".join([f"{self.title}, {self.world} ranks", *self.first_lines])),
            title_justify="left",
            caption=Text(caption, style="table.caption"),
            caption_justify="left",
        )
        for heading in ("collective", "operands", "groups", "how", "issued at", "meanwhile"):
            table.add_column(heading, overflow="fold")
        for heading in ("bytes", "on the wire", "on a link"):
            table.add_column(heading, justify="right")
        for row in self.rows:
            table.add_row(
                became(row),
                short(row.operands),
                ranks(row, self.world),
                f"{row.rule}: {row.why}" if row.why else row.rule,
                places(row),
                overlap(row),
                *(f"{n:,}" for n in (row.memory_bytes, row.wire_bytes, row.link_bytes)),
            )
        return table


def _advised(one: advice.Advice) -> str:
    lines = dict.fromkeys(f"{PurePath(file).name}:{line}" for file, line in one.lines if file)
    return f"- {one}" + (f" ({', '.join(lines)})" if lines else "")
