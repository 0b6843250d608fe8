"""docs/capabilities.md, from what was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from torch_xla_cc.capabilities._grid import (
    COUNTS,
    FEW_TYPES,
    KINDS,
    LAYOUTS,
    LISTS,
    OPS,
    REDUCTIONS,
    STAND_INS,
    TYPES,
    WITHOUT_INSTRUCTION,
    Cell,
)
from torch_xla_cc.capabilities._measured import PACKAGES, Measured, boxes, ordered
from torch_xla_cc.capabilities._outcome import NATIVE, Outcome
from torch_xla_cc.capabilities._results import counted
from torch_xla_cc.capabilities._sides import SHAPE
from torch_xla_cc.capabilities._table import outcome_in, rows, why

_INTRO = """\
# Capabilities

Look up here whether a collective is native on your device, and what it becomes where it is not.
Written by `python tools/capabilities`, from what `probe` measured; do not edit.

Every op, element type, reduce kind, form of groups or pairs and number of operands was compiled by
the device's real compiler, as the bytes that our lowering emits with its native rule. What failed
is the table that a lowering looks up (`lowering/capability/measured.inc`).

- **native**: we emit the HLO instruction of that name, and the compiler takes it.
- **fallback**: the compiler refuses it, crashes or does not finish. The op becomes what
  [spec.md](spec.md) says under "Fallback", built of instructions that this compiler takes.
- **becomes**: what the compiler makes of the native instruction, in its optimised program. That is
  the compiler's choice, and may change with the size of the operand: a TPU makes an all-reduce of a
  small reduce-scatter, and keeps most larger ones ([spec.md](spec.md#layout)).

Kinds of devices that are not here (Neuron, others) are taken as native throughout. A generation
that is not here is held for the least of its kind: what one generation does not take, it does not.
`torch_xla_cc.capabilities.register` adds to the table or overrides it.

## What was measured
"""

_FORMS = """\
Forms of groups: **world** is one group of everybody, in rank order; **equal** are several groups of
one size, of consecutive ranks or of every n-th rank, in ascending order, and on a TPU whose
topology is known boxes of chips in equal steps; **scrambled** are all others that have one size and
hold everybody; **unequal** groups have different sizes; with **partial** groups some ranks are in
none. Forms of pairs: in a **ring** data gets back to a rank
that sent some, in a **chain** it does not.
"""

_NAMES = {
    "cpu": "XLA:CPU, ranks on threads",
    "pod": "The pod: XLA:CPU, ranks that are processes",
    "tpu": "TPU",
    "gpu": "GPU",
}


def title(device: str) -> str:
    """ "TPU v5e"."""
    kind, _, generation = device.partition(":")
    return f"{_NAMES[kind]} {generation}".strip()


def page(measured: Measured) -> str:
    """The text of the page."""
    parts = [_INTRO, *_methods(measured), _FORMS]
    for device in measured.devices():
        parts += _device(measured, device)
    return "\n".join(parts).rstrip() + "\n"


_METHODS = """\
- **TPU**: compiled ahead of time by libtpu, with no TPU, one replica a chip. **GPU**: compiled
  ahead of time by the CUDA plugin of JAX for a description of the GPU, with no GPU. Nothing of
  this has run on either: what these programs compute, and how fast, was not measured. What has run
  on a GPU, and that send and recv become a collective_permute there whatever compiles:
  [gpu.md](gpu.md).
- **CPU**: run on four threads, where every rank's program is another one, as programs of ranks on
  threads may be. The results were compared: bit by bit where data is only moved, with sums and
  products of small integers for reductions. Other numbers of threads were not probed. What an
  instruction becomes was not recorded; the programs that are compared side by side were compiled by
  the XLA:CPU of torch_xla once more, which compiles some instructions that ranks never meet in.
- **The pod**: run on processes by jaxlib's CPU client with gloo, as the pod's device processes run
  programs on several machines, the same on all ranks. The results were compared in the same way.
- With 8 ranks and fewer all {types} types were probed, with more those that differ in their sort:
  {few}. The others are taken as these:
  {likes}.
- Operands have 2 rows a rank and 128 columns; a second one has 4 rows a rank and 64 columns.
  "Several" means these two. Only all_gather, all_reduce and reduce_scatter have an instruction of
  several operands that means one of each; the other ops are always emitted one by one.
  More dimensions were not probed: what a TPU's compiler refuses of those depends on the shape, and
  the lowering avoids it ([spec.md](spec.md#layout)).
- Equal groups are rows of a square. Scrambled ones are both halves of the world, each in the order
  0, 3, 6, ... modulo its size. Unequal ones are a quarter, a half and a quarter. Partial ones are
  the first two quarters. Other groups of these forms were probed for f32 and one operand: a form
  is native only if all are. Where they differ, both are named.
- send and recv are compiled together, in one program: either alone is refused.
- Each probe is isolated. Probes share a process, or on CPU a program, until one fails; then it is
  tried again alone, and only then it has the blame. The limit is 60 s. A type that a compiler does
  not take as a parameter is not probed further. Where f32 runs into the limit, other types are
  taken to do so too; on CPU also where it ends the process, and where XLA refuses the groups.
- Between a number of ranks at which something is native and the next one, at which it is not, it is
  taken as not native. What failed with few ranks is never native with more.
- uneven_all_gather and uneven_reduce_scatter were not probed: no compiler has an instruction for
  them. Side by side, what they would be as the even op of padded operands stands instead of native.
  uneven_all_to_all is ragged-all-to-all; ranks send about 1, 2, 3, 1, 2, ... parts.
"""


def _methods(measured: Measured) -> list[str]:
    number = sum(map(len, measured.cells.values()))
    versions = ", ".join(f"{package} {measured.versions[package]}" for package in PACKAGES)
    likes = ", ".join(f"{name} as {other}" for name, other in STAND_INS.items())
    text = _METHODS.format(types=len(TYPES), few=", ".join(FEW_TYPES), likes=likes)
    return [f"{number} probes on {measured.date}, with {versions}.\n", text]


def _device(measured: Measured, device: str) -> list[str]:
    parts = [f"## {title(device)}\n", *_overview(measured, device)]
    parts += _not_native(measured, device)
    parts += _becomes(measured, device)
    parts += _layouts(measured, device)
    for world in measured.worlds(device):
        parts += _sides(measured.sides.get(f"{device}/{world}", []), device, world)
    return parts


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _short(outcome: Outcome | None) -> str:
    if outcome is None:
        return "not measured"
    if outcome.result != NATIVE:
        return f"fallback ({outcome.result})"
    return f"native: {outcome.becomes}" if outcome.becomes else "native"


def _overview(measured: Measured, device: str) -> list[str]:
    """f32, one operand, sum: a row an op and a form."""
    worlds = measured.worlds(device)
    lines = []
    for op, forms in OPS.items():
        for form in forms if op not in WITHOUT_INSTRUCTION else ():
            cell = Cell(op, "f32", "sum" if op in REDUCTIONS else "-", form, "one")
            found = [_short(outcome_in(measured, device, world, cell)) for world in worlds]
            lines.append([op if form == forms[0] else "", form, *found])
    unit = "chips" if device.startswith("tpu") else "ranks"
    heads = ["f32, sum", "form", *(f"{world} {unit}: becomes" for world in worlds)]
    if device == "cpu":
        heads = [head.removesuffix(": becomes") for head in heads]
    return [_table(heads, lines)]


def _words(values: frozenset[str], everything: Iterable[str]) -> str:
    missing = [value for value in everything if value not in values]
    if not missing:
        return "all"
    if len(missing) * 3 < len(values):
        return f"all but {', '.join(missing)}"
    return ", ".join(ordered(values))


def _box_words(op: str, box: tuple[frozenset[str], ...]) -> list[str]:
    forms, counts, kinds, types = box
    return [
        op,
        _words(types, sorted(TYPES)),
        _words(kinds, KINDS) if op in REDUCTIONS else "",
        _words(forms, OPS[op]) if op in OPS else "",
        _words(counts, COUNTS) if op in LISTS else "",
    ]


def _point(cell: Cell) -> tuple[str, ...]:
    return cell.form, cell.number, cell.kind, cell.type


def _not_native(measured: Measured, device: str) -> list[str]:
    lines = [
        [*_box_words(op, box), str(least) if least else "any", reason.replace("|", "\\|")]
        for op, box, least, reason in rows(measured, device)
    ]
    if not lines:
        return ["Everything is native.\n"]
    heads = ["op", "types", "kinds", "forms", "operands", "from ranks", "why"]
    return ["Not native:\n", _table(heads, lines)]


# Instructions of other names than their op.
_PLAIN = dict.fromkeys(("send", "recv"), "recv + send") | {"uneven_all_to_all": "ragged-all-to-all"}


def _becomes(measured: Measured, device: str) -> list[str]:
    """Native instructions of which the compiler makes others."""
    groups: dict[tuple[str, str], dict[tuple[str, ...], list[int]]] = {}
    for world in measured.worlds(device):
        for cell, outcome in measured.cells[f"{device}/{world}"].items():
            plain = _PLAIN.get(cell.op, cell.op.replace("_", "-"))
            if (
                outcome.result == NATIVE
                and outcome.becomes not in ("", plain)
                and ":" not in cell.form
            ):
                worlds = groups.setdefault((cell.op, outcome.becomes), {})
                worlds.setdefault(_point(cell), []).append(world)
    lines = [
        [*_box_words(op, box), ", ".join(map(str, worlds)), becomes]
        for (op, becomes), points in groups.items()
        for worlds in sorted(set(map(tuple, points.values())))
        for box in boxes(point for point, its in points.items() if tuple(its) == worlds)
    ]
    if not lines:
        return []
    heads = ["op", "types", "kinds", "forms", "operands", "ranks", "becomes"]
    return ["Native, but of which the compiler makes something else:\n", _table(heads, lines)]


def _layouts(measured: Measured, device: str) -> list[str]:
    """Groups of a form that come out otherwise than those that stand for it."""
    lines = []
    for world in measured.worlds(device):
        cells = measured.cells[f"{device}/{world}"]
        for cell, outcome in cells.items():
            base = cells.get(cell._replace(form=cell.form.split(":")[0]))
            if cell.form in LAYOUTS and base and base.result != outcome.result:
                reason = outcome.result if outcome.result == NATIVE else why(device, outcome)
                lines.append([cell.op, cell.form, str(world), reason])
    if not lines:
        return []
    text = "Groups and pairs that come out otherwise than those that stand for their form (f32):\n"
    return [text, _table(["op", "form", "ranks", "outcome"], lines)]


def _number(value: float | None) -> str:
    return "not stated" if value is None else f"{int(value):,}"


_OTHERS = """\
Temporary bytes are the compiler's own figure;
"bytes accessed" are what XLA's cost analysis (of jaxlib) says of the optimised program, since this
compiler does not state them."""
_FIGURES = {
    "tpu": 'The other figures are the compiler\'s own; "bytes accessed" is memory\nof the device.',
    "gpu": _OTHERS,
    "cpu": _OTHERS,
    "pod": _OTHERS,
}


def _sides(sides: list[dict[str, Any]], device: str, world: int) -> list[str]:
    if not sides:
        return []
    lines = []
    for side in sides:
        op = "send, recv" if side["op"] == "recv" else side["op"]
        for rule in ("native", "fallback"):
            found = side[rule]
            if "failed" in found:
                rest = [found["failed"].replace("|", "\\|"), _wire(found), "", ""]
            else:
                rest = [
                    found.get("instructions", "not stated"),
                    _wire(found),
                    _number(found.get("accessed")),
                    _number(found.get("temporary")),
                ]
            counts = Counter(found.get("emitted", ()))
            emitted = ", ".join(counted(opcode, n) for opcode, n in sorted(counts.items()))
            name = "padded" if rule == "native" and op in WITHOUT_INSTRUCTION else rule
            lines.append(
                [f"{op}, {side['form']}" if rule == "native" else "", name, emitted, *rest]
            )
    dims = ",".join(map(str, SHAPE))
    size = 4 * SHAPE[0] * SHAPE[1] >> 20
    text = (
        f"Native and fallback side by side: {world} ranks, f32[{dims}] ({size} MiB), sum. Bytes on "
        "the wire are\ncomputed: what a rank sends. The other figures are the compiler's own; "
        '"bytes accessed" is memory\nof the device.\n'
    )
    heads = ["op", "rule", "emitted", "after optimisation", "bytes on the wire", "bytes accessed"]
    return [text, _table([*heads, "temporary bytes"], lines)]


def _wire(side: dict[str, Any]) -> str:
    return _number(side["wire"]) if "wire" in side else ""
