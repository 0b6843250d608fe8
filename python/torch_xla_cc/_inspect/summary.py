"""The first lines of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .rows import GONE, HOST, Row


@dataclass(frozen=True)
class Summary:
    """What became of all collectives of a program together."""

    traced: int  # collectives before a compiler saw them
    kept: int  # of these, still what they were
    changed: int  # another now, such as an all-reduce of everything
    gone: int
    through_host: int  # besides these
    instructions: int  # collectives of the compiled program
    combined: int  # of these, such as several of those traced are in
    in_combined: int  # how many are in them
    overlapped: int  # beside a computation, not of few bytes
    waits: int  # with nothing beside them, or little
    in_loops: int  # whose bytes are those of one time round
    link_bytes: int  # over the link that carries most, of all together
    fewest_link_bytes: int  # of what was called, by the same model

    def lines(self) -> list[str]:
        """For people."""
        parts = [f"{self.kept} of {self.traced} collectives kept"]
        parts += [
            f"{n} {what}" for n, what in ((self.changed, "changed"), (self.gone, "gone")) if n
        ]
        if self.combined:
            parts.append(f"{self.in_combined} combined in {self.combined}")
        if self.through_host:
            parts.append(f"{self.through_host} through the host")
        overlap = f"of {self.instructions} in the compiled program {self.overlapped} overlapped"
        return [f"{', '.join(parts)}; {overlap}, {self.waits} waiting", self.bytes_line]

    @property
    def bytes_line(self) -> str:
        """Of the busiest link."""
        text = f"busiest link: {self.link_bytes:,} bytes"
        fewest = "the fewest possible for these calls and their types"
        if self.fewest_link_bytes:
            times = self.link_bytes / self.fewest_link_bytes
            text += f", {times:.2f} times {fewest} ({self.fewest_link_bytes:,})"
        else:
            text += f"; {fewest}: 0"
        return text + (f"; {self.in_loops} in loops count once" if self.in_loops else "")


def summary(rows: Sequence[Row], link_bytes: int, fewest_link_bytes: int) -> Summary:
    """Of these rows."""
    compiled = [row for row in rows if row.compiled]
    kept = [row for row in compiled if row.before and set(row.before) == {row.after}]
    combined = [row for row in compiled if len(row.before) > 1]
    overlapped = sum(row.overlaps for row in compiled)
    return Summary(
        traced=_traced(rows),
        kept=_traced(kept),
        changed=_traced(compiled) - _traced(kept),
        gone=sum(row.after == GONE for row in rows),
        through_host=sum(row.after == HOST for row in rows),
        instructions=len(compiled),
        combined=len(combined),
        in_combined=_traced(combined),
        overlapped=overlapped,
        waits=len(compiled) - overlapped,
        in_loops=sum(row.in_loop for row in rows),
        link_bytes=link_bytes,
        fewest_link_bytes=fewest_link_bytes,
    )


def _traced(rows: Sequence[Row]) -> int:
    return sum(len(row.before) for row in rows if row.first_part)
