"""XLA's interchange format, the part of it that collectives need, as protobuf message classes.

There is no protoc where a user runs this, so the schema is kept as .proto text and compiled here.
It lives in a descriptor pool of its own: jax, tensorflow or torch_xla may bring the full schema.
What it leaves out survives a parse and a serialization, as protobuf keeps fields it does not know.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

try:
    from google.protobuf import (  # type: ignore[import-untyped,unused-ignore]
        descriptor_pb2,
        descriptor_pool,
        message_factory,
    )
    from google.protobuf.message import DecodeError as DecodeError  # type: ignore[import-untyped,unused-ignore]
except ImportError as missing:
    raise ImportError(
        "torch_xla_cc reads and writes HLO in Python with the package protobuf, which is not "
        "installed: pip install protobuf"
    ) from missing

# Message classes come into being at run time, so a type checker knows nothing about their fields.
Message: TypeAlias = Any

PACKAGE = "torch_xla_cc.hlo"

SCHEMA = """
enum PrimitiveType {
  PRIMITIVE_TYPE_INVALID = 0; PRED = 1; TUPLE = 13; OPAQUE_TYPE = 14; TOKEN = 17; BUFFER = 34;
  S1 = 30; S2 = 26; S4 = 21; S8 = 2; S16 = 3; S32 = 4; S64 = 5; U1 = 31; U2 = 27; U4 = 22;
  U8 = 6; U16 = 7; U32 = 8; U64 = 9; F16 = 10; F32 = 11; BF16 = 16; F64 = 12; C64 = 15; C128 = 18;
  F8E5M2 = 19; F8E4M3 = 28; F8E4M3FN = 20; F8E4M3B11FNUZ = 23; F8E3M4 = 29; F8E5M2FNUZ = 24;
  F8E4M3FNUZ = 25; F4E2M1FN = 32; F8E8M0FNU = 33;
}
message HloModuleProtoWithConfig { HloModuleProto hlo_module = 1; }
message HloModuleProto {
  string name = 1; string entry_computation_name = 2; repeated HloComputationProto computations = 3;
  ProgramShapeProto host_program_shape = 4; int64 id = 5; int64 entry_computation_id = 6;
  HloScheduleProto schedule = 7; DeviceAssignmentProto device_assignment = 15;
  StackFrameIndexProto stack_frame_index = 17;
}
message DeviceAssignmentProto { int32 replica_count = 1; int32 computation_count = 2; }
message HloScheduleProto { map<int64, InstructionSequence> sequences = 1; }
message InstructionSequence { repeated int64 instruction_ids = 1; }
message HloComputationProto {
  string name = 1; repeated HloInstructionProto instructions = 2;
  ProgramShapeProto program_shape = 4; int64 id = 5; int64 root_id = 6;
  bool is_fusion_computation = 7; string execution_thread = 8;
}
message HloInstructionProto {
  string name = 1; string opcode = 2; ShapeProto shape = 3; OpMetadata metadata = 7;
  LiteralProto literal = 8; int64 parameter_number = 9; string fusion_kind = 11;
  int64 tuple_index = 13; repeated int64 dimensions = 14;
  Window window = 15; ConvolutionDimensionNumbers convolution_dimension_numbers = 16;
  repeated SliceDimensions slice_dimensions = 17; repeated int64 dynamic_slice_sizes = 20;
  PaddingConfig padding_config = 21; int64 channel_id = 26; string custom_call_target = 28;
  DotDimensionNumbers dot_dimension_numbers = 30;
  int64 id = 35; repeated int64 operand_ids = 36; repeated int64 control_predecessor_ids = 37;
  repeated int64 called_computation_ids = 38; OpSharding sharding = 40;
  bytes backend_config = 43; int64 all_reduce_id = 45;
  bool is_host_transfer = 47; repeated ReplicaGroup replica_groups = 49;
  repeated SourceTarget source_target_pairs = 52; bool constrain_layout = 56;
  string comparison_direction = 63; bool custom_call_has_side_effect = 65;
  FrontendAttributes frontend_attributes = 68; bool use_global_device_ids = 71;
  string comparison_type = 72; int64 custom_call_api_version = 77;
  CollectiveDeviceListProto collective_device_list = 87;
}
message Window { repeated WindowDimension dimensions = 1; }
message WindowDimension {
  int64 size = 1; int64 stride = 2; int64 padding_low = 3; int64 padding_high = 4;
  int64 window_dilation = 5; int64 base_dilation = 6;
}
message ConvolutionDimensionNumbers {
  int64 kernel_input_feature_dimension = 3; int64 kernel_output_feature_dimension = 4;
  repeated int64 kernel_spatial_dimensions = 6; int64 input_batch_dimension = 7;
  int64 input_feature_dimension = 8; int64 output_batch_dimension = 9;
  int64 output_feature_dimension = 10; repeated int64 input_spatial_dimensions = 11;
  repeated int64 output_spatial_dimensions = 12;
}
message DotDimensionNumbers {
  repeated int64 lhs_contracting_dimensions = 1; repeated int64 rhs_contracting_dimensions = 2;
  repeated int64 lhs_batch_dimensions = 3; repeated int64 rhs_batch_dimensions = 4;
}
message OpSharding { int64 type = 1; repeated OpSharding tuple_shardings = 5; }
message SliceDimensions { int64 start = 1; int64 limit = 2; int64 stride = 3; }
message ShapeProto {
  PrimitiveType element_type = 2; repeated int64 dimensions = 3;
  repeated ShapeProto tuple_shapes = 4; LayoutProto layout = 5;
  repeated bool is_dynamic_dimension = 6;
}
message LayoutProto {
  repeated int64 minor_to_major = 1; repeated TileProto tiles = 6; int64 element_size_in_bits = 7;
  int64 memory_space = 8; int64 tail_padding_alignment_in_elements = 16;
}
message TileProto { repeated int64 dimensions = 1; }
message ProgramShapeProto {
  repeated ShapeProto parameters = 1; ShapeProto result = 2; repeated string parameter_names = 3;
}
message ReplicaGroup { repeated int64 replica_ids = 1; }
message CollectiveDeviceListProto {
  repeated ReplicaGroup replica_groups = 1; IotaReplicaGroupListProto iota_replica_group_list = 2;
}
message IotaReplicaGroupListProto {
  int64 num_replica_groups = 1; int64 num_devices_per_group = 2;
  repeated int64 iota_reshape_dims = 3; repeated int32 iota_transpose_perm = 4;
}
message SourceTarget { int64 source = 1; int64 target = 2; }
message OpMetadata {
  string op_type = 1; string op_name = 2; string source_file = 3; int32 source_line = 4;
  int32 stack_frame_id = 15;
  int32 source_end_line = 17; int32 source_column = 18; int32 source_end_column = 19;
}
message StackFrameIndexProto {
  repeated string file_names = 1; repeated FileLocation file_locations = 3;
  repeated StackFrame stack_frames = 4;
}
message FileLocation { int32 file_name_id = 1; int32 line = 3; }
message StackFrame { int32 file_location_id = 1; int32 parent_frame_id = 2; }
message FrontendAttributes { map<string, string> map = 1; }
message PaddingConfig { repeated PaddingConfigDimension dimensions = 1; }
message PaddingConfigDimension {
  int64 edge_padding_low = 1; int64 edge_padding_high = 2; int64 interior_padding = 3;
}
message LiteralProto {
  ShapeProto shape = 1; repeated bool preds = 2; bytes u8s = 3; repeated int32 s32s = 4;
  repeated int64 s64s = 5; repeated uint32 u32s = 6; repeated uint64 u64s = 7;
  repeated float f32s = 8; repeated double f64s = 9; repeated LiteralProto tuple_literals = 10;
  bytes f16s = 11; repeated float c64s = 12; bytes bf16s = 13; bytes s8s = 15; bytes u16s = 16;
  bytes s16s = 17; repeated double c128s = 18; bytes f8e5m2s = 19; bytes f8e4m3fns = 20;
  bytes f8e4m3b11fnuzs = 23; bytes f8e5m2fnuzs = 24; bytes f8e4m3fnuzs = 25; bytes f8e4m3s = 28;
  bytes f8e3m4s = 29;
}
"""


class Field(NamedTuple):
    """One row of the schema; `type` is a scalar, an enum, a message or `map<key, value>`."""

    name: str
    number: int
    type: str
    repeated: bool


_COMMENT = re.compile(r"//.*")
_BLOCK = re.compile(r"(message|enum) (\w+) \{(.*?)\}", re.DOTALL)
_FIELD = re.compile(r"(repeated )?(map<\w+, \w+>|\w+) (\w+) = (\d+);")
_VALUE = re.compile(r"(\w+) = (\d+);")


def messages(schema: str = SCHEMA) -> dict[str, list[Field]]:
    """The fields of each message that a .proto text (without nesting) declares."""
    return {
        name: [Field(f[2], int(f[3]), f[1], bool(f[0])) for f in _FIELD.findall(body)]
        for block, name, body in _BLOCK.findall(_COMMENT.sub("", schema))
        if block == "message"
    }


def enums(schema: str = SCHEMA) -> dict[str, dict[str, int]]:
    """The values of each enum that a .proto text declares."""
    return {
        name: {value: int(number) for value, number in _VALUE.findall(body)}
        for block, name, body in _BLOCK.findall(_COMMENT.sub("", schema))
        if block == "enum"
    }


def load(schema: str) -> dict[str, Message]:
    """The message classes that a .proto text declares, by name."""
    file = descriptor_pb2.FileDescriptorProto(name="torch_xla_cc.proto", package=PACKAGE)
    file.syntax = "proto3"
    for name, values in enums(schema).items():
        enum = file.enum_type.add(name=name)
        for value, number in values.items():
            enum.value.add(name=value, number=number)
    for name, fields in messages(schema).items():
        message = file.message_type.add(name=name)
        for field in fields:
            _add_field(message, field, set(enums(schema)))
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    loaded = pool.FindFileByName(file.name)
    return {
        name: message_factory.GetMessageClass(message)
        for name, message in loaded.message_types_by_name.items()
    }


def _add_field(message: Message, field: Field, enum_names: set[str]) -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    row = message.field.add(name=field.name, number=field.number)
    row.label = kinds.LABEL_REPEATED if field.repeated else kinds.LABEL_OPTIONAL
    if field.type.startswith("map<"):
        # On the wire a map is a repeated message of key and value; this marks it as a map.
        entry = message.nested_type.add(name=f"{field.name.title()}Entry")
        entry.options.map_entry = True
        key, value = re.findall(r"\w+", field.type)[1:]
        _add_field(entry, Field("key", 1, key, False), enum_names)
        _add_field(entry, Field("value", 2, value, False), enum_names)
        row.label, row.type = kinds.LABEL_REPEATED, kinds.TYPE_MESSAGE
        row.type_name = f".{PACKAGE}.{message.name}.{entry.name}"
    elif f"TYPE_{field.type.upper()}" in kinds.Type.keys():  # noqa: SIM118, not a dict
        row.type = kinds.Type.Value(f"TYPE_{field.type.upper()}")
    else:
        row.type = kinds.TYPE_ENUM if field.type in enum_names else kinds.TYPE_MESSAGE
        row.type_name = f".{PACKAGE}.{field.type}"


_types = load(SCHEMA)

PrimitiveType: Message = IntEnum("PrimitiveType", enums()["PrimitiveType"])  # type: ignore[misc]
HloModuleProtoWithConfig: Message = _types["HloModuleProtoWithConfig"]
HloModuleProto: Message = _types["HloModuleProto"]
HloComputationProto: Message = _types["HloComputationProto"]
HloInstructionProto: Message = _types["HloInstructionProto"]
ShapeProto: Message = _types["ShapeProto"]
LayoutProto: Message = _types["LayoutProto"]
ProgramShapeProto: Message = _types["ProgramShapeProto"]
ReplicaGroup: Message = _types["ReplicaGroup"]
CollectiveDeviceListProto: Message = _types["CollectiveDeviceListProto"]
IotaReplicaGroupListProto: Message = _types["IotaReplicaGroupListProto"]
SliceDimensions: Message = _types["SliceDimensions"]
SourceTarget: Message = _types["SourceTarget"]
OpMetadata: Message = _types["OpMetadata"]
FrontendAttributes: Message = _types["FrontendAttributes"]
PaddingConfig: Message = _types["PaddingConfig"]
LiteralProto: Message = _types["LiteralProto"]
