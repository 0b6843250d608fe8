"""What is probed: every op x type x reduce kind x form x number of operands, on every target."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

# f32 first: what becomes of it saves time on the others.
TYPES = (
    "f32", "bf16", "s32", "s8", "pred", "f64", "s64", "u64", "c64", "f8e5m2", "f16", "f8e4m3fn",
    "s16", "u8", "u16", "u32", "c128",
)  # fmt: skip
INTEGERS = {"s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"}
COMPLEX = {"c64", "c128"}

KINDS = ("sum", "product", "min", "max", "and", "or", "xor")
BITWISE = {"and", "or", "xor"}

GROUP_FORMS = ("world", "equal", "unequal", "partial", "scrambled")
PAIR_FORMS = ("chain", "ring")
COUNTS = ("one", "several")

REDUCTIONS = ("all_reduce", "reduce_scatter", "uneven_reduce_scatter")
OPS = {
    "all_gather": GROUP_FORMS,
    "all_reduce": GROUP_FORMS,
    "reduce_scatter": GROUP_FORMS,
    "all_to_all": GROUP_FORMS,
    "collective_broadcast": GROUP_FORMS,
    "collective_permute": PAIR_FORMS,
    "send": PAIR_FORMS,
    "recv": PAIR_FORMS,
    "uneven_all_gather": GROUP_FORMS,
    "uneven_reduce_scatter": GROUP_FORMS,
    "uneven_all_to_all": GROUP_FORMS,
}
# No compiler has an instruction for these: lowering/capability/fixed.inc.
WITHOUT_INSTRUCTION = {"uneven_all_gather", "uneven_reduce_scatter"}
# The others have no instruction that takes several operands and means one of each.
LISTS = {"all_gather", "all_reduce", "reduce_scatter"}

# Large worlds are measured for one type of each sort; the others are as these.
STAND_INS = {
    "f16": "bf16", "f8e4m3fn": "f8e5m2", "s16": "s8", "u8": "s8", "u16": "s8", "u32": "s32",
    "c128": "c64",
}  # fmt: skip
FEW_TYPES = [name for name in TYPES if name not in STAND_INS]

# More groups of a form, for f32: a form is native if all of them are.
LAYOUTS = (
    "equal:strided",
    "equal:pairs",
    "scrambled:far-pairs",
    "scrambled:random",
    "scrambled:world",
    "ring:shuffled",
)


class Cell(NamedTuple):
    """One probe. `kind` is "-" for data movement; the op "parameter" returns what it is given."""

    op: str
    type: str
    kind: str
    form: str
    number: str

    def __str__(self) -> str:
        return " ".join(self)


class Device(NamedTuple):
    """A kind of device as the table names it, in a world of some size."""

    name: str  # cpu, pod, tpu:v5e, gpu:h100
    world: int
    target: str  # for lowering and compiling

    def __str__(self) -> str:
        return f"{self.name}/{self.world}"


_TPU_SHAPES = {
    8: {"v5e": "2x4", "v6e": "2x4", "v4": "2x2x2", "v5p": "2x2x2"},
    32: {"v5e": "4x8"},
    64: {"v5e": "8x8", "v6e": "8x8", "v4": "4x4x4", "v5p": "4x4x4"},
    128: {"v5e": "8x16"},
    256: {"v5e": "16x16", "v6e": "16x16", "v4": "4x8x8", "v5p": "4x8x8"},
}


def _devices() -> list[Device]:
    tpus = [
        Device(f"tpu:{generation}", world, f"tpu:{generation}:{shape}")
        for world, shapes in _TPU_SHAPES.items()
        for generation, shape in shapes.items()
    ]
    gpus = [Device(f"gpu:{name}", 8, f"gpu:{name}x8") for name in ("h100", "a100", "b200")]
    cpus = [Device("cpu", 4, "cpu"), Device("pod", 4, "pod"), Device("pod", 8, "pod")]
    found = {str(device): device for device in [*tpus, *gpus, *cpus]}
    # In the order in which one would miss them.
    first = [
        "tpu:v5e/8",
        "gpu:h100/8",
        "cpu/4",
        "pod/4",
        "pod/8",
        "tpu:v5e/256",
        "tpu:v5e/128",
        "tpu:v5e/64",
        "tpu:v5e/32",
    ]
    return [found[name] for name in [*first, *(name for name in found if name not in first)]]


DEVICES = _devices()


def is_small(device: Device) -> bool:
    """Whether all types are measured, on this number of ranks."""
    return device.world <= 8


def kinds_of(type_name: str) -> list[str]:
    """The reduce kinds that a type has: docs/spec.md, (R1) and (R2)."""
    kinds = list(KINDS)
    if type_name in COMPLEX:
        kinds = ["sum", "product"]
    elif type_name not in INTEGERS | {"pred"}:
        kinds = [kind for kind in KINDS if kind not in BITWISE]
    return kinds


def cells(device: Device) -> Iterator[Cell]:
    """All probes of a device: those of an op, a form and a count together, f32 first."""
    types = TYPES if is_small(device) else FEW_TYPES
    for name in types:
        yield Cell("parameter", name, "-", "-", "one")
    for op, forms in OPS.items():
        if op in WITHOUT_INSTRUCTION:
            continue
        for form in [*forms, *(layout for layout in LAYOUTS if layout.split(":")[0] in forms)]:
            if ":" in form and device.name == "cpu":
                continue  # any two ranks meet alike
            for count in COUNTS if op in LISTS and ":" not in form else ("one",):
                for name in types if ":" not in form else ("f32",):
                    for kind in kinds_of(name) if op in REDUCTIONS else ("-",):
                        if ":" not in form or kind in ("sum", "-"):
                            yield Cell(op, name, kind, form, count)


def groups(form: str, world: int) -> list[list[int]] | None:
    """Groups of a form."""
    half, quarter = world // 2, world // 4
    ranks = list(range(world))
    side = 2 ** ((world.bit_length() - 1) // 2)  # the side of a square, or half of the other
    # 3 has no common divisor with a power of two.
    mixed = [3 * i % half for i in range(half)] if half > 2 else [1, 0]
    shuffled = random.Random(world).sample(ranks, world)
    return {
        "world": None,
        "equal": [ranks[i : i + side] for i in range(0, world, side)],
        "equal:strided": [ranks[i::side] for i in range(side)],
        "equal:pairs": [[i, i + 1] for i in range(0, world, 2)],
        "scrambled:far-pairs": [[i, world - 1 - i] for i in range(half)],
        "unequal": [ranks[:quarter], ranks[quarter : quarter + half], ranks[quarter + half :]],
        "partial": [ranks[:quarter], ranks[quarter:half]] if quarter > 1 else [ranks[:half]],
        "scrambled": [[at + i for i in mixed] for at in (0, half)],
        "scrambled:random": [shuffled[i : i + side] for i in range(0, world, side)],
        "scrambled:world": [[3 * i % world for i in range(world)]],
    }[form]  # fmt: skip


def pairs(form: str, world: int) -> list[list[int]]:
    """(source, target) pairs of a form."""
    ring = [[i, (i + 1) % world] for i in range(world)]
    if form == "chain":
        return ring[:-1]
    return ring if form == "ring" else [[i, (3 * i + 5) % world] for i in range(world)]


def dims(world: int, count: str) -> list[list[int]]:
    """The operands' dimensions; dimension 0 divides by the size of every group above."""
    return [[2 * world, 128], [4 * world, 64]][: COUNTS.index(count) + 1]


def split(rows: int, members: int, first: int = 0) -> list[int]:
    """Rows, cut unevenly for the members of a group: about 1, 2, 3, 1, 2, ... parts."""
    weights = [1 + (first + i) % 3 for i in range(members)]
    sizes = [rows * weight // sum(weights) for weight in weights]
    sizes[0] += rows - sum(sizes)
    return sizes


def sizes(op: str, members: list[list[int]] | None, world: int, rows: int) -> Any:  # noqa: ANN401
    """The sizes of an uneven op whose operands have that many rows."""
    lists = members or [list(range(world))]
    if op == "uneven_all_gather":
        return [max(rows - rows * (rank % 3) // 4, 0) for rank in range(world)]
    matrix = [[0] * world for _ in range(world)]
    for group in lists:
        for place, rank in enumerate(group):
            for member, size in zip(group, split(rows, len(group), place), strict=True):
                matrix[rank][member] = size
    if op == "uneven_all_to_all":
        return matrix
    return [
        next((matrix[group[0]][rank] for group in lists if rank in group), 0)
        for rank in range(world)
    ]


def fields(cell: Cell, world: int, rows: int = 0) -> tuple[Any, ...]:
    """What `_C.lower_<op>` takes after operands of so many rows; those of dims() without."""
    if cell.form in ("chain", "ring", "ring:shuffled"):
        routes = pairs(cell.form, world)
        return (routes,) if cell.op == "collective_permute" else (7, routes)
    members = groups(cell.form, world)
    if cell.op.startswith("uneven"):
        scale = (cell.kind, 1.0, 1.0) if cell.op in REDUCTIONS else ()
        rows = rows or dims(world, "one")[0][0]
        return (*scale, sizes(cell.op, members, world, rows), members)
    return {
        "all_gather": (0, members),
        "all_reduce": (cell.kind, 1.0, 1.0, members),
        "reduce_scatter": (cell.kind, 1.0, 1.0, 0, None, members),
        "all_to_all": (0, 0, None, members),
        "collective_broadcast": (members[0][0] if members else 0, members),
    }[cell.op]
