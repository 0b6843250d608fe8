"""How groups are written for GPUs: newer CUDA plugins lose the compact form (docs/gpu.md)."""

import pytest

from torch_xla_cc import _C, lowering_for
from torch_xla_cc._hlo import protobuf


def devices(target, world, groups):
    """The CollectiveDeviceListProto of an all_gather."""
    with lowering_for(target, world):
        module = _C.lower_all_gather([(11, [4])], 0, groups)["bytes"]
    proto = protobuf.HloModuleProto.FromString(module)
    instructions = [one for part in proto.computations for one in part.instructions]
    (gather,) = [one for one in instructions if one.opcode == "all-gather"]
    return gather.collective_device_list


@pytest.mark.parametrize(
    ("groups", "listed"),
    [
        (None, [[0, 1, 2, 3]]),
        ([[0, 1], [2, 3]], [[0, 1], [2, 3]]),
        ([[0], [1], [2], [3]], [[0], [1], [2], [3]]),
    ],
)
def test_they_are_lists(groups, listed):
    found = devices("gpu", 4, groups)
    assert not found.HasField("iota_replica_group_list")
    assert [list(group.replica_ids) for group in found.replica_groups] == listed


def test_other_devices_and_large_worlds_keep_the_compact_form():
    for target, world in (("tpu", 4), ("gpu", 2048)):
        assert devices(target, world, None).HasField("iota_replica_group_list")
