"""What a compiled program asks of the links and of the memory of a device."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

# The compiler inlines JAX's functions, and says then in which they were; what became of which call
# is seen by names.
_OUTER = "jit(step)/shard_map/"


class Figures(NamedTuple):
    """Of one program. A collective in a loop counts once."""

    calls: int  # collectives before the compiler saw them
    instructions: int  # collectives of the compiled program
    alone: int  # of these: neither combined nor beside a computation
    combined: int  # of these: such as several calls are in
    overlapped: int  # of these: beside a computation
    waits: int  # of these: with nothing beside them
    helped: int  # calls that are combined, or run beside a computation
    added: int  # instructions that no call became: the compiler's own
    waiting: int  # bytes that come to a rank by those with nothing beside them
    link: int  # bytes over the busiest link, of all together
    wire: int  # bytes that come to a rank
    hbm: int | None  # bytes accessed, as the compiler states them; a GPU's does not
    peak: int  # arguments, outputs and temporaries
    opcodes: dict[str, int]


def kept(stem: Path, module: bytes, program: Any | None, failure: str = "") -> None:
    """Writes both sides of a program to files that begin so; or why there is no second one."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".before").write_bytes(module)
    stated: dict[str, Any] = {"failure": failure}
    if program is not None:
        stem.with_suffix(".after").write_bytes(program.hlo)
        stated |= {"memory": dict(program.memory), "cost": dict(program.cost)}
    stem.with_suffix(".json").write_text(json.dumps(stated))  # last: then all is there


def of_files(stem: Path, target: str, ranks: int) -> Figures | str:
    """The figures of what is kept there, or why the compiler made no program."""
    stated = json.loads(stem.with_suffix(".json").read_text())
    if stated["failure"]:
        return str(stated["failure"])
    sides = [stem.with_suffix(end).read_bytes() for end in (".before", ".after")]
    return figures(sides[0], sides[1], stated["memory"], stated["cost"], target, ranks)


def figures(
    module: bytes,
    compiled: bytes,
    memory: dict[str, int],
    cost: dict[str, float],
    target: str,
    ranks: int,
) -> Figures:
    """Of a module and of what the compiler made of it."""
    from torch_xla_cc._hlo import traffic
    from torch_xla_cc._hlo.links import busiest
    from torch_xla_cc._hlo.topology import topology_of
    from torch_xla_cc._inspect.rows import rows
    from torch_xla_cc._inspect.summary import summary

    before, after = found_in(module), found_in(compiled)
    made = rows(before, after, ranks, target)
    link = busiest(after, topology_of(target, ranks), ranks)
    told = summary(made, link, link)
    running = [row for row in made if row.compiled]
    return Figures(
        calls=len(before),
        instructions=told.instructions,
        alone=sum(len(row.before) < 2 and not row.overlaps for row in running),
        combined=told.combined,
        overlapped=told.overlapped,
        waits=told.waits,
        helped=sum(
            len(row.before)
            for row in running
            if row.first_part and (len(row.before) > 1 or row.overlaps)
        ),
        added=sum(not row.before for row in running),
        waiting=sum(row.wire_bytes for row in running if not row.overlaps),
        link=link,
        wire=round(sum(traffic.received(one, ranks) for one in after)),
        hbm=round(cost["bytes accessed"]) if "bytes accessed" in cost else None,
        peak=memory["arguments"] + memory["outputs"] + memory["temporaries"] - memory["aliased"],
        opcodes=dict(Counter(one.opcode for one in after)),
    )


def found_in(hlo: bytes) -> list[Any]:
    """The collectives of a serialized HloModuleProto."""
    from torch_xla_cc._hlo import proto, protobuf
    from torch_xla_cc._hlo.collectives import finder

    found = finder(proto.computations(protobuf.HloModuleProto.FromString(hlo))).found()
    for one in found:
        own = one.source.op_name.removeprefix(_OUTER)
        one.source = dataclasses.replace(one.source, op_name=own)
    return found
