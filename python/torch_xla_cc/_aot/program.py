"""A compiled program: the optimised HLO, and its instructions as small records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module

from .. import _hlo_pb
from .errors import CompilerMissing


@dataclass(frozen=True, eq=False)
class Instruction:
    """One HLO instruction; those it takes as operands are of the same computation."""

    name: str
    opcode: str
    shape: str  # as in HLO text, without layout: "f32[8,128]", "(f32[4], u32[])"
    layout: str  # order of dimensions and tiles, "1,0:T(8,128)"; not the memory space
    channel_id: int | None
    operands: tuple[Instruction, ...] = field(repr=False)
    called: tuple[str, ...]  # the computations that a fusion, a call or a reduction runs
    custom_call_target: str
    computation: str
    in_entry: bool


@dataclass(frozen=True)
class CompiledProgram:
    """What a compiler made of a module."""

    target: str
    hlo: bytes = field(repr=False)  # a serialized HloModuleProto, with layouts and a schedule
    memory: Mapping[str, int]  # bytes: code, arguments, outputs, aliased, temporaries
    cost: Mapping[str, float]  # the compiler's own estimates, under its own names

    def text(self) -> str:
        """The program as HLO text, which jaxlib prints."""
        try:
            printer = import_module("jaxlib.xla_client")._xla
        except ImportError as missing:
            raise CompilerMissing(
                "CompiledProgram.text() prints HLO with the package jaxlib, which is not "
                "installed: pip install 'torch_xla_cc[aot]'"
            ) from missing
        return str(printer.HloModule.from_serialized_hlo_module_proto(self.hlo).to_string())

    def instructions(self) -> list[Instruction]:
        """The instructions of all computations, each after its operands."""
        module = _hlo_pb.HloModuleProto.FromString(self.hlo)
        names = {computation.id: computation.name for computation in module.computations}
        found: list[Instruction] = []
        for computation in module.computations:
            by_id: dict[int, Instruction] = {}
            for proto in computation.instructions:
                by_id[proto.id] = Instruction(
                    name=proto.name,
                    opcode=proto.opcode,
                    shape=shape_text(proto.shape),
                    layout=layout_text(proto.shape.layout),
                    channel_id=proto.channel_id or None,
                    operands=tuple(by_id[operand] for operand in proto.operand_ids),
                    called=tuple(names[called] for called in proto.called_computation_ids),
                    custom_call_target=proto.custom_call_target,
                    computation=computation.name,
                    in_entry=computation.id == module.entry_computation_id,
                )
            found += by_id.values()
        return found


def shape_text(shape: _hlo_pb.Message) -> str:
    """A ShapeProto as in HLO text, without layout."""
    kind = _hlo_pb.PrimitiveType(shape.element_type).name.lower()
    if kind == "tuple":
        return f"({', '.join(shape_text(element) for element in shape.tuple_shapes)})"
    return f"{kind}[{','.join(map(str, shape.dimensions))}]"


def layout_text(layout: _hlo_pb.Message) -> str:
    """Order of dimensions and tiles of a LayoutProto as in HLO text."""
    order = ",".join(map(str, layout.minor_to_major))
    tiles = "".join(f"({','.join(map(str, tile.dimensions))})" for tile in layout.tiles)
    return f"{order}:T{tiles}" if tiles else order
