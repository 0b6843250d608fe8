"""The folder of `--xla_dump_to`, of torch_xla, JAX or whatever else brings XLA."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from .._hlo import proto, protobuf
from .._hlo.collectives import Collective, Finder, finder
from .._hlo.text import Computation, Header, HloSyntaxError, Reader

_LONGEST_LINE = 1 << 26
LARGEST_WHOLE = 1 << 24  # bytes of a file of which all is held in memory at a time

_FILE = re.compile(
    r"(?P<module>.*module_\d+\..+?)\.(?:(?P<before>before)|[\w.]*?after)_optimizations"
    r"\.(?:txt|hlo|hlo\.pb)"
)


class DumpError(ValueError):
    """A folder or a file that is none of a dump, or not as it should be."""


@dataclass
class Files:
    """What a dump has of a module."""

    name: str
    before: Path | None = None  # before optimisation
    after: Path | None = None


@dataclass(frozen=True)
class Program:
    """The collectives of one file."""

    header: Header
    finder: Finder
    whole: tuple[Computation, ...]  # none of a file that is larger than LARGEST_WHOLE

    @functools.cached_property
    def collectives(self) -> list[Collective]:
        return self.finder.found()

    @property
    def world(self) -> int:
        """How many devices run it; a proto does not say, and has at least those that it names."""
        named = [
            number for one in self.collectives for group in one.groups or () for number in group
        ]
        named += [number for one in self.collectives for pair in one.pairs or () for number in pair]
        return max(self.header.replicas * self.header.partitions, max(named, default=0) + 1)


def modules(folder: str | Path) -> list[Files]:
    """The modules of a dump, by name."""
    where = Path(folder)
    if not where.is_dir():
        raise DumpError(
            f"{folder}: expected a folder that XLA wrote, by XLA_FLAGS=--xla_dump_to=FOLDER"
        )
    found: dict[str, Files] = {}
    for path in sorted(where.iterdir()):
        if name := _FILE.fullmatch(path.name):
            files = found.setdefault(name["module"], Files(name["module"]))
            setattr(files, "before" if name["before"] else "after", path)
    if not found:
        raise DumpError(
            f"{folder}: no file is named like module_0001.name.after_optimizations.txt; set "
            f"XLA_FLAGS=--xla_dump_to={folder} before the program starts"
        )
    return list(found.values())


def read(path: str | Path) -> Program:
    """The collectives of an HLO file, text or proto. DumpError names file, line and column."""
    path = Path(path)
    try:
        whole = path.stat().st_size <= LARGEST_WHOLE
        if path.suffix == ".pb":
            header, computations = _from_proto(path.read_bytes())
            return _program(lambda: header, computations, whole)
        with path.open(encoding="utf-8", errors="replace") as lines:
            reader = Reader(_bounded(lines))
            return _program(lambda: reader.header, reader.computations(), whole)
    except (OSError, ValueError) as error:
        raise DumpError(f"{path}: {error}") from error


def _program(
    header: Callable[[], Header], computations: Iterable[Computation], whole: bool
) -> Program:
    """The header is complete when the computations have come."""
    kept = tuple(computations) if whole else ()
    found = finder(kept or computations, whole)
    return Program(header(), found, kept)


def _bounded(file: TextIO) -> Iterator[str]:
    """Its lines; what has no ends of lines is no HLO, and is not taken into memory."""
    for number in itertools.count(1):
        line = file.readline(_LONGEST_LINE)
        if not line:
            return
        if len(line) == _LONGEST_LINE:
            raise HloSyntaxError(
                f"expected no line of {_LONGEST_LINE} characters", number, len(line)
            )
        yield line


def _from_proto(data: bytes) -> tuple[Header, Iterator[Computation]]:
    try:
        module = protobuf.HloModuleProtoWithConfig.FromString(data).hlo_module
    except protobuf.DecodeError as error:
        raise ValueError(f"not an HloProto: {error}") from None
    return proto.header(module), proto.computations(module)
