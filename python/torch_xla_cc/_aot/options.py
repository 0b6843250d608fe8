"""The options that PJRT compilers take beside the program."""

from __future__ import annotations

from collections.abc import Mapping

from .._hlo import protobuf

_TYPES = protobuf.load("""
message CompileOptionsProto {
  ExecutableBuildOptionsProto executable_build_options = 3;
  map<string, OptionOverrideProto> env_option_overrides = 7;
}
message OptionOverrideProto { repeated string string_field = 1; }
message ExecutableBuildOptionsProto {
  int64 device_ordinal = 1; int64 num_replicas = 4; int64 num_partitions = 5;
  bool use_spmd_partitioning = 6;
  DeviceAssignmentProto device_assignment = 9;
}
message DeviceAssignmentProto {
  int32 replica_count = 1; int32 computation_count = 2;
  repeated ComputationDevice computation_devices = 3;
}
message ComputationDevice { repeated int64 replica_device_ids = 1; }
""")


def compile_options(
    ranks: int, partitioned: bool = False, overrides: Mapping[str, str] | None = None
) -> bytes:
    """A serialized CompileOptionsProto: rank i on device i, as in torch_xla.

    Ranks are replicas of one partition, or the partitions of one replica.
    """
    replicas, partitions = (1, ranks) if partitioned else (ranks, 1)
    options = _TYPES["CompileOptionsProto"]()
    build = options.executable_build_options
    build.device_ordinal = -1  # not set
    build.num_replicas = replicas
    build.num_partitions = partitions
    build.use_spmd_partitioning = partitioned
    # Without an assignment libtpu segfaults for topologies of more than one host in three
    # dimensions (v4, v5p).
    assignment = build.device_assignment
    assignment.replica_count = replicas
    assignment.computation_count = partitions
    for partition in range(partitions):
        first = partition * replicas
        assignment.computation_devices.add(replica_device_ids=range(first, first + replicas))
    for name, text in (overrides or {}).items():
        # One, but a field that is repeated is written even if it is empty, as this one must be.
        options.env_option_overrides[name].string_field.append(text)
    return bytes(options.SerializeToString())
