"""What a device takes: asked for, explained, overridden."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import torch

from .. import _C
from .._ops.targets import lowering_for
from .._ops.types import ReduceType
from .._runtime.show import show
from . import _grid

# torch's dtypes by HLO's name, and XLA's numbers of them.
_DTYPES: dict[torch.dtype, tuple[str, int]] = {
    torch.bool: ("pred", 1),
    torch.int8: ("s8", 2),
    torch.int16: ("s16", 3),
    torch.int32: ("s32", 4),
    torch.int64: ("s64", 5),
    torch.uint8: ("u8", 6),
    torch.uint16: ("u16", 7),
    torch.uint32: ("u32", 8),
    torch.uint64: ("u64", 9),
    torch.float16: ("f16", 10),
    torch.float32: ("f32", 11),
    torch.float64: ("f64", 12),
    torch.complex64: ("c64", 15),
    torch.bfloat16: ("bf16", 16),
    torch.complex128: ("c128", 18),
    torch.float8_e5m2: ("f8e5m2", 19),
    torch.float8_e4m3fn: ("f8e4m3fn", 20),
}
_ON_INSTRUCTION = {"mul": "product", "average": "sum", "premultiplied_sum": "sum"}
_USUAL_WORLD = 8  # of a target that does not say its size
_ELEMENTS = 1 << 20  # of the operand that figures are given for


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What a collective becomes on a target, for an operand of 2**20 elements, or a few more."""

    op: str
    target: str
    world_size: int
    dtype: torch.dtype
    reduce_type: str | None
    groups: str
    rule: str  # native, fallback or refused
    ways: tuple[str, ...]  # that the fallback takes, the outermost first: "all_gather as a sum"
    why: str  # of all but native
    opcodes: tuple[str, ...]  # the HLO collectives that we emit
    becomes: str | None  # what the compiler made of the native one when it was measured
    wire_bytes: int  # that each rank receives
    native_wire_bytes: int  # the same for the native instruction, taken or not
    memory_bytes: int  # of the collectives' results
    native_memory_bytes: int

    def __str__(self) -> str:
        """Readable."""
        kind = f" by {self.reduce_type}" if self.reduce_type else ""
        lines = [
            f"{self.op}{kind} of {str(self.dtype).removeprefix('torch.')} ({self.groups}) on "
            f"{self.target}, {self.world_size} ranks: {self.rule}"
        ]
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.ways:
            lines.append(f"  by: {', then '.join(self.ways)}")
        if self.opcodes:
            lines.append(f"  emitted: {', '.join(self.opcodes)}")
        if self.becomes:
            lines.append(f"  what the compiler makes of the instruction: {self.becomes}")
        if self.rule != "refused":
            lines.append(
                f"  on the wire: {self.wire_bytes} bytes a rank, by the instruction "
                f"{self.native_wire_bytes}; of results {self.memory_bytes}, by the instruction "
                f"{self.native_memory_bytes}"
            )
        return "\n".join(lines)


def _one_of(what: str, value: object, known: Iterable[str]) -> str:
    names = list(known)
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"{what} = {show(value)}, but it must be one of {', '.join(names)}")
    return value


def _type(function: str, dtype: object) -> tuple[str, int]:
    if not isinstance(dtype, torch.dtype) or dtype not in _DTYPES:
        known = ", ".join(str(name) for name in _DTYPES)
        raise ValueError(f"{function}: dtype = {show(dtype)}, but it must be one of {known}")
    return _DTYPES[dtype]


def _kind(function: str, op: str, reduce_type: object) -> str | None:
    if op not in _grid.REDUCTIONS:
        return None
    known = [*_grid.KINDS, *_ON_INSTRUCTION]
    return _one_of(f"{function}: reduce_type", reduce_type, known)


def _target(function: str, target: object) -> tuple[str, int]:
    """A target's name and world size; of the running device if there is none."""
    if target is None or (isinstance(target, torch.device) and target.type == "xla"):
        return _C.current_target()
    if not isinstance(target, str):
        raise TypeError(
            f"{function}: target = {show(target)}, but it must be a name such as 'tpu:v5e', an XLA "
            "device, or None for the running one"
        )
    try:
        with lowering_for(target):
            return _C.current_target()
    except ValueError:
        pass  # it may only lack a size
    try:
        with lowering_for(target, _USUAL_WORLD):
            return _C.current_target()
    except ValueError as error:
        raise ValueError(f"{function}: {error}") from error


def _form(function: str, op: str, groups: object) -> str:
    forms = _grid.OPS.get(op, _grid.GROUP_FORMS)
    if isinstance(groups, str) and groups == "world" and "world" not in forms:
        groups = forms[0]  # pairs
    return _one_of(f"{function}: groups", groups, forms)


def supports(
    op: str,
    target: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
    *,
    reduce_type: ReduceType = "sum",
    groups: str = "world",
) -> bool:
    """Whether the target's compiler takes the native instruction.

    Args:
      op: the name of a collective, "all_gather".
      target: "cpu", "tpu:v5e", "gpu:h100", "tpu:v5e:16x16"; None or an XLA device for the running
        one.
      dtype: of the operand.
      reduce_type: of all_reduce and reduce_scatter.
      groups: "world", "equal", "unequal", "partial" (some ranks in none) or "scrambled" (not in
        rank order); of ops with pairs "chain" or "ring".
    """
    cell, number, (name, world) = _asked("supports", op, target, dtype, reduce_type, groups)
    return _choose(name, world, number, cell)[0] == "native"


def explain(
    op: str,
    target: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
    *,
    reduce_type: ReduceType = "sum",
    groups: str = "world",
) -> Explanation:
    """What a collective becomes there, and why. Arguments as of supports."""
    cell, number, (name, world) = _asked("explain", op, target, dtype, reduce_type, groups)
    call = _lowered(name, world, number, cell)
    return Explanation(
        op=op,
        target=name,
        world_size=world,
        dtype=dtype,
        reduce_type=reduce_type if op in _grid.REDUCTIONS else None,
        groups=cell.form,
        rule=call["rule"],
        ways=tuple(call["ways"]),
        why=call["why"],
        opcodes=tuple(call["opcodes"]),
        becomes=_becomes(name, world, cell),
        wire_bytes=call["wire_bytes"],
        native_wire_bytes=call["native_wire_bytes"],
        memory_bytes=call["memory_bytes"],
        native_memory_bytes=call["native_memory_bytes"],
    )


def _asked(
    function: str, op: object, target: object, dtype: object, reduce_type: object, groups: object
) -> tuple[_grid.Cell, int, tuple[str, int]]:
    """What is asked for, checked: a cell, the number of its type, the target."""
    known = _one_of(f"{function}: op", op, _grid.OPS)
    kind = _kind(function, known, reduce_type) or "-"
    type_name, number = _type(function, dtype)
    form = _form(function, known, groups)
    cell = _grid.Cell(known, type_name, _ON_INSTRUCTION.get(kind, kind), form, "one")
    return cell, number, _target(function, target)


def _choose(target: str, world: int, number: int, cell: _grid.Cell) -> tuple[str, str]:
    kind = cell.kind if cell.kind != "-" else None
    size = max(map(len, _members(cell, world)))
    rule, why, _ = _C.choose(cell.op, target, world, number, kind, cell.form, size)
    return rule, why


def _lowered(target: str, world: int, number: int, cell: _grid.Cell) -> dict[str, Any]:
    rule, why = _choose(target, world, number, cell)
    nothing = dict.fromkeys(
        ("wire_bytes", "native_wire_bytes", "memory_bytes", "native_memory_bytes"), 0
    )
    if rule == "refused":
        return {"rule": rule, "ways": [], "why": why, "opcodes": [], **nothing}
    size = math.lcm(world, 2 * max(len(g) for g in _members(cell, world)))
    elements = -(-_ELEMENTS // size) * size
    with lowering_for(target, world):
        try:
            return getattr(_C, f"lower_{cell.op}")(  # type: ignore[no-any-return]
                [(number, [elements])], *_grid.fields(cell, world, elements)
            )
        except ValueError as error:  # (C1): nothing that a fallback could be built of
            why = str(error)
            return {"rule": "refused", "ways": [], "why": why, "opcodes": [], **nothing}


def _members(cell: _grid.Cell, world: int) -> list[list[int]]:
    if cell.form in _grid.PAIR_FORMS:
        return [list(range(world))]
    return _grid.groups(cell.form, world) or [list(range(world))]


@functools.cache
def _measurements() -> Any:  # noqa: ANN401 (of a module that is imported when it is needed)
    """The file, which explain alone needs, and which takes most of a second to read."""
    from . import _measured

    return _measured.load()


def _becomes(target: str, world: int, cell: _grid.Cell) -> str | None:
    """The measured outcome on that device, in the largest world that is not larger."""
    from . import _table

    measured = _measurements()
    # gpu:h100x8 -> gpu:h100, tpu:v4:2x2x2 -> tpu:v4
    device = re.sub(r"(?<=\d)x\d+$", "", ":".join(target.split(":")[:2]))
    worlds = [size for size in measured.worlds(device) if size <= max(world, 8)]
    found = _table.outcome_in(measured, device, worlds[-1], cell) if worlds else None
    return found.becomes if found is not None and found.becomes else None


class Registration:
    """An entry of the application in the capability table; as a context manager, for a block."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def unregister(self) -> None:
        """Take the entry out again."""
        _C.unregister_capability(self._handle)

    def __enter__(self) -> Registration:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.unregister()


def register(
    op: str,
    target: str,
    native: bool,
    *,
    dtype: torch.dtype | None = None,
    reduce_type: ReduceType | None = None,
    groups: str | None = None,
    why: str = "an entry of the application",
) -> Registration:
    """Say what a device takes, over what was measured. The last entry that fits counts.

    Args:
      op: the name of a collective.
      target: a kind, "neuron", for all its generations, or one of them: "tpu:v5e".
      native: whether its compiler takes the instruction.
      dtype, reduce_type, groups: for these only; None for all.
      why: the reason, for explanations and warnings.

    Every rank must make the same entries before it traces. An instruction that the compiler does
    not take after all ends the process in most compilers.
    """
    _one_of("register: op", op, _grid.OPS)
    if not isinstance(target, str) or not target.isascii() or target.count(":") > 1:
        raise ValueError(
            f"register: target = {show(target)}, but it must be a device kind or a generation of "
            "one, as 'neuron' or 'tpu:v5e'"
        )
    if not isinstance(native, bool):
        raise TypeError(f"register: native = {show(native)}, but it must be True or False")
    if not isinstance(why, str):
        raise TypeError(f"register: why = {show(why)}, but it must be a string")
    types = [] if dtype is None else [_type("register", dtype)[1]]
    kinds = []
    if reduce_type is not None:
        kind = _one_of("register: reduce_type", reduce_type, [*_grid.KINDS, *_ON_INSTRUCTION])
        kinds = [_ON_INSTRUCTION.get(kind, kind)]
    forms = [] if groups is None else [_form("register", op, groups)]
    try:
        return Registration(_C.register_capability(target, op, types, kinds, forms, native, why))
    except ValueError as error:
        raise ValueError(f"register: {error}") from error
