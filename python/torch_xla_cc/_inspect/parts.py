"""The programs of a step that reads: each read ends one, and loops run some of them again."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Hashable, Iterable
from pathlib import PurePath

from .ranks import without_lines
from .trace import Traced


def distinct(programs: Iterable[Traced]) -> list[tuple[Traced, int]]:
    """Each program once, with its number in its name, and how often it runs in the step."""
    alike: dict[Hashable, list[Traced]] = defaultdict(list)
    for one in programs:
        alike[without_lines(one.module), one.calls, one.read_at].append(one)
    found = [(some[0], len(some)) for some in alike.values()]
    if len(found) == 1:
        return found
    return [
        (_named(one, f"program {number} of {len(found)}", times), times)
        for number, (one, times) in enumerate(found, 1)
    ]


def _named(one: Traced, number: str, times: int) -> Traced:
    name = f"{one.name}, {number}"
    if times > 1:
        name += f", {times} times"
    if one.read_at:
        name += f", up to the read at {_short(one.read_at)}"
    return dataclasses.replace(one, name=name)


def _short(site: str) -> str:
    return PurePath(site).name


def why_several(programs: Iterable[Traced], alone: bool) -> str:
    """Of a rank's step: that it reads, and what; nothing if it does not."""
    reads = list(dict.fromkeys(_short(one.read_at) for one in programs if one.read_at))
    if not reads:
        return ""
    shown = ", ".join(reads[:3]) + (", ..." if len(reads) > 3 else "")
    said = f"The step reads at {shown}, and each read ends a program"
    if alone:
        said += "; what it reads is as if every rank had passed what this one did"
    return said
