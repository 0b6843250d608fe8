"""What becomes of the main ops by shape and size: whether a compiler keeps the instruction.

The other probes have one small shape. Compilers decide by shape, too: of many a reduce_scatter a
TPU's makes an all-reduce of everything.
"""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from torch_xla_cc import _C
from torch_xla_cc._aot import CompilerError, collectives, compile_many, parse_target
from torch_xla_cc._hlo import protobuf, traffic
from torch_xla_cc._ops.targets import lowering_for
from torch_xla_cc._runtime.versions import installed

from ._measured import PACKAGES
from ._results import counted, outcome_of

PATH = Path(__file__).with_name("shapes.json")
TARGETS = (
    *("tpu:v5e:2x4", "tpu:v5e:8x8", "tpu:v5e:16x16", "tpu:v5p:4x4x4", "tpu:v6e:8x8"),
    *("tpu:v4:4x4x4", "gpu:h100x8"),
)
OPS = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "collective_permute")
# Bytes of everything: of all_gather's result, and of the others' operand.
SIZES = tuple(4096 << (4 * i) for i in range(5))
_ALLOWED = 120.0  # seconds of a compiler

Shape = tuple[tuple[int, ...], int]  # of a rank's part, and the dimension of which it is a part


def _odd(size: int) -> int:
    return max(size, 1) | 1


# Shapes of about so many elements.
FAMILIES: dict[str, Callable[[int], Shape]] = {
    "vector": lambda n: ((n,), 0),
    "odd vector": lambda n: ((_odd(n),), 0),
    "rows of 512": lambda n: ((max(n // 512, 1), 512), 0),
    "odd rows of 512": lambda n: ((_odd(n // 512), 512), 0),
    "rows of 1000": lambda n: ((max(n // 1000, 1), 1000), 0),
    "rows of 4": lambda n: ((max(n // 4, 1), 4), 0),
    "last of two": lambda n: ((64, max(n // 64, 1)), 1),
    "last of two, odd": lambda n: ((63, _odd(n // 63)), 1),
    "middle of three": lambda n: ((4, max(n // 2048, 1), 512), 1),
    "middle of three, odd": lambda n: ((4, _odd(n // 2048), 512), 1),
}


class Probe(NamedTuple):
    """One call: of an op, of a family of shapes, of a size."""

    op: str
    family: str
    size: int

    def __str__(self) -> str:
        return f"{self.op}, {self.family}, {self.size}"


class Found(NamedTuple):
    """What became of it."""

    becomes: str  # "reduce-scatter", "4 reduce-scatter", "all-reduce", or why there is no program
    way: str  # in which form it was given to the compiler: "in blocks", or none
    wire: float  # bytes on the wire, as parts of the fewest possible; 0 without a program


def probes() -> list[Probe]:
    """All of them."""
    return [Probe(op, family, size) for op in OPS for family in FAMILIES for size in SIZES]


def kept(op: str, becomes: str) -> bool:
    """Whether the instruction is there: it alone, or with permutes for what was filled up."""
    opcodes = {part.split()[-1] for part in becomes.split(" + ")}
    return op.replace("_", "-") in opcodes and opcodes <= {
        op.replace("_", "-"), "collective-permute"
    }  # fmt: skip


def emitted(probe: Probe, target: str, element_type: str = "F32") -> tuple[dict[str, Any], int]:
    """What it is lowered to, and the fewest bytes that must come to a rank."""
    world = parse_target(target).devices
    number = int(protobuf.PrimitiveType[element_type])
    whole = probe.op in ("all_reduce", "collective_permute")
    unit = 4 if element_type == "F32" else 2
    part, dim = FAMILIES[probe.family](max(probe.size // unit // (1 if whole else world), 1))
    shape = list(part)
    if probe.op in ("reduce_scatter", "all_to_all"):
        shape[dim] *= world
    call: dict[str, Callable[[], Any]] = {
        "all_gather": lambda: _C.lower_all_gather([(number, shape)], dim, None),
        "all_reduce": lambda: _C.lower_all_reduce([(number, shape)], "sum", 1.0, 1.0, None),
        "reduce_scatter": lambda: _C.lower_reduce_scatter(
            [(number, shape)], "sum", 1.0, 1.0, dim, None, None
        ),
        "all_to_all": lambda: _C.lower_all_to_all([(number, shape)], dim, dim, None, None),
        "collective_permute": lambda: _C.lower_collective_permute(
            [(number, shape)], [[rank, (rank + 1) % world] for rank in range(world)]
        ),
    }
    with lowering_for(target):
        lowered = dict(call[probe.op]())
    times = {
        "all_gather": Fraction(world - 1),
        "all_reduce": Fraction(2 * (world - 1), world),
        "collective_permute": Fraction(1),
    }.get(probe.op, Fraction(world - 1, world))
    return lowered, round(times * unit * prod(shape))


def run(target: str, some: Sequence[Probe]) -> Iterator[tuple[Probe, Found]]:
    """What becomes of them."""
    world = parse_target(target).devices
    made = [emitted(probe, target) for probe in some]
    modules = [bytes(lowered["bytes"]) for lowered, _ in made]
    programs = compile_many(modules, target, timeout_s=_ALLOWED)
    for probe, (lowered, fewest), program in zip(some, made, programs, strict=True):
        ways = [way for way in lowered["ways"] if way.startswith(probe.op)]
        way = ways[-1].removeprefix(probe.op).strip() if ways else ""
        if isinstance(program, CompilerError):
            yield probe, Found(outcome_of(program).result, way, 0)
            continue
        found = collectives(program)
        counts = Counter(one.opcode for one in found)
        wire = float(sum(traffic.received(one, world) for one in found) / max(fewest, 1))
        becomes = " + ".join(counted(name, n) for name, n in sorted(counts.items()))
        yield probe, Found(becomes, way, round(wire, 2))


def save(results: dict[str, dict[Probe, Found]], path: Path = PATH) -> None:
    """Write the file: a line for each op and family."""
    lines = [f' "date": "{datetime.datetime.now(tz=datetime.timezone.utc).date()}"']
    lines.append(f' "versions": {json.dumps({name: installed(name) for name in PACKAGES})}')
    for target, found in results.items():
        rows = [
            f'  "{op}, {family}": '
            + json.dumps([list(found[Probe(op, family, size)]) for size in SIZES])
            for op in OPS
            for family in FAMILIES
        ]
        lines.append(f' "{target}": {{\n' + ",\n".join(rows) + "\n }")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def load(path: Path = PATH) -> tuple[dict[str, str], dict[str, dict[Probe, Found]]]:
    """The date and versions, and what was found for each target."""
    raw = json.loads(path.read_text())
    about = {"date": raw.pop("date"), **raw.pop("versions")}
    return about, {
        target: {
            Probe(*key.split(", ", 1), size): Found(*found)  # type: ignore[call-arg]
            for key, row in rows.items()
            for size, found in zip(SIZES, row, strict=True)
        }
        for target, rows in raw.items()
    }
