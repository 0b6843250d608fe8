"""HLO in XLA's interchange format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .._hlo import products, protobuf
from .attributes import iota_groups, pairs
from .instruction import NOWHERE, Groups, Instruction, Source
from .opcodes import PRODUCTS, has_source, is_collective
from .text import Computation, Header

_SEND_PAIRS = "_xla_send_recv_source_target_pairs"


def header(module: protobuf.Message) -> Header:
    """What stands before the computations. The counts of devices are not in a HloModuleProto."""
    return Header(name=module.name)


def computations(module: protobuf.Message) -> Iterator[Computation]:
    """Those of a HloModuleProto, callees before their callers. ValueError if it is malformed.

    Instructions are in the order of the schedule, if there is one: that in the proto is another.
    """
    names = {computation.id: computation.name for computation in module.computations}
    for proto in module.computations:
        is_entry = proto.id == module.entry_computation_id
        computation = Computation(proto.name, is_entry)
        by_id: dict[int, Instruction] = {}
        for one in proto.instructions:
            try:
                by_id[one.id] = _instruction(one, computation, by_id, names)
            except KeyError as missing:
                raise ValueError(
                    f"instruction {one.name!r} of computation {proto.name!r} names {missing}, "
                    "which is not in the module before it"
                ) from None
        computation.instructions.extend(_scheduled(by_id, module.schedule.sequences, proto.id))
        computation.root = by_id.get(proto.root_id)
        yield computation


def _scheduled(
    by_id: dict[int, Instruction], sequences: protobuf.Message, computation: int
) -> Iterable[Instruction]:
    if computation not in sequences:  # asking for it would put it there
        return by_id.values()
    order = sequences[computation].instruction_ids
    if sorted(order) != sorted(by_id):
        raise ValueError(f"the schedule of computation {computation} is not of its instructions")
    return [by_id[number] for number in order]


def _instruction(
    proto: protobuf.Message,
    computation: Computation,
    by_id: dict[int, Instruction],
    names: dict[int, str],
) -> Instruction:
    metadata = proto.metadata
    instruction = Instruction(
        name=proto.name,
        opcode=proto.opcode,
        type=type_text(proto.shape),
        operands=[by_id[operand] for operand in proto.operand_ids],
        called=tuple(names[called] for called in proto.called_computation_ids),
        computation=computation.name,
        in_entry=computation.is_entry,
        custom_call_target=proto.custom_call_target,
        channel_id=proto.channel_id or None,
        source=Source(
            metadata.op_type, metadata.op_name, metadata.source_file, metadata.source_line
        )
        if has_source(proto.opcode)
        else NOWHERE,
    )
    if proto.opcode == "parameter":
        instruction.number = proto.parameter_number
    elif proto.opcode == "get-tuple-element":
        instruction.number = proto.tuple_index
    elif proto.opcode == "slice":
        instruction.cut = tuple((d.start, d.limit, d.stride) for d in proto.slice_dimensions)
    elif proto.opcode in PRODUCTS:
        instruction.products = _products(proto, instruction)
    if is_collective(proto.opcode):
        instruction.groups = groups_of(proto)
        instruction.dimensions = tuple(proto.dimensions)
        instruction.pairs = tuple((pair.source, pair.target) for pair in proto.source_target_pairs)
        if sent := proto.frontend_attributes.map.get(_SEND_PAIRS):
            instruction.pairs = pairs(sent)
    return instruction


def _products(proto: protobuf.Message, one: Instruction) -> int:
    if proto.opcode == "dot":
        contracts = proto.dot_dimension_numbers.lhs_contracting_dimensions
        return products.of_matmul(one, contracts)
    if not products.is_convolution(one):
        return products.of_text(one, proto.backend_config.decode(errors="replace"))
    dims = proto.convolution_dimension_numbers
    labels = [
        {dims.input_batch_dimension: "b", dims.input_feature_dimension: "f"},
        {dims.kernel_output_feature_dimension: "o", dims.kernel_input_feature_dimension: "i"},
        {dims.output_batch_dimension: "b", dims.output_feature_dimension: "f"},
    ]
    of_space = (
        dims.input_spatial_dimensions,
        dims.kernel_spatial_dimensions,
        dims.output_spatial_dimensions,
    )
    for label, some in zip(labels, of_space, strict=True):
        label.update((dim, str(at)) for at, dim in enumerate(some))
    windows = [
        products.Window(
            each.size, each.stride, each.padding_low, each.window_dilation, each.base_dilation
        )
        for each in proto.window.dimensions
    ]
    return products.of_convolution(one, labels, windows)


def groups_of(proto: protobuf.Message) -> Groups:
    """The groups of a HloInstructionProto that is a collective; () is all replicas, as one."""
    devices = proto.collective_device_list
    iota = devices.iota_replica_group_list
    if iota.num_replica_groups:
        return iota_groups(
            iota.num_replica_groups,
            iota.num_devices_per_group,
            tuple(iota.iota_reshape_dims),
            tuple(iota.iota_transpose_perm),
        )
    listed = proto.replica_groups or devices.replica_groups
    return tuple(tuple(group.replica_ids) for group in listed)


def type_text(shape: protobuf.Message) -> str:
    """A ShapeProto as in HLO text, with its layout."""
    try:
        kind = protobuf.PrimitiveType(shape.element_type).name.lower()
    except ValueError:
        kind = f"type{shape.element_type}"
    if kind == "tuple":
        return f"({', '.join(type_text(element) for element in shape.tuple_shapes)})"
    layout = layout_text(shape.layout)
    return f"{kind}[{','.join(map(str, shape.dimensions))}]" + (f"{{{layout}}}" if layout else "")


def layout_text(layout: protobuf.Message) -> str:
    """Order of dimensions and tiles of a LayoutProto as in HLO text."""
    order = ",".join(map(str, layout.minor_to_major))
    tiles = "".join(f"({','.join(map(str, tile.dimensions))})" for tile in layout.tiles)
    return f"{order}:T{tiles}" if tiles else order
