"""What is traced for a target that is not here and read all the same: as if every rank had passed
what this one did, beside NumPy with the same array on all ranks; and the program is the target's.
"""

import numpy as np
import pytest
import torch
import torch_xla
from oracle import Case, issue, meaning, put, take

import torch_xla_cc
from torch_xla_cc._inspect.stand_ins import Alone
from torch_xla_cc._inspect.trace import _module
from torch_xla_cc._runtime import rank_slice, stand_ins

WORLD = 8
TARGETS = ("tpu:v5e:2x4", "gpu:h100x8", "cpu")
HALVES = [[0, 1, 2, 3], [4, 5, 6, 7]]
ODD = [[5, 0, 2], [7, 6]]  # a fallback on all of them
RING = [(i, (i + 1) % WORLD) for i in range(WORLD)]
SIZES = [[(i + j) % 3 for j in range(WORLD)] for i in range(WORLD)]
CALLS = [
    *[("all_reduce", {"reduce_type": kind}) for kind in ("sum", "mul", "max", "average")],
    ("all_reduce", {"reduce_type": "sum", "groups": HALVES}),
    ("all_reduce", {"reduce_type": "sum", "groups": ODD}),
    ("all_gather", {"dim": 1, "groups": HALVES}),
    ("all_gather", {"dim": 0, "groups": ODD}),
    ("reduce_scatter", {"reduce_type": "sum", "scatter_dim": 0}),
    ("reduce_scatter", {"reduce_type": "min", "scatter_dim": 1, "groups": HALVES}),
    ("all_to_all", {"split_dimension": 0, "concat_dimension": 1}),
    ("all_to_all", {"split_dimension": 1, "concat_dimension": 1, "groups": HALVES}),
    ("collective_permute", {"pairs": RING}),
    ("collective_permute", {"pairs": [(0, 5)]}),
    ("collective_broadcast", {"root_ordinal": 0}),
    ("send_recv", {"pairs": RING, "tag": 3}),
]


def opcodes(tensors):
    module = torch_xla_cc._hlo.protobuf.HloModuleProto.FromString(_module(tensors))
    return [x.opcode for one in module.computations for x in one.instructions]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rank", [0, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_values(target, rank, dtype):
    x = np.random.default_rng(0).integers(1, 4, (8, 16)).astype(dtype)
    torch_xla_cc._C.set_fallback("allow")
    wrong = []
    with torch_xla_cc.lowering_for(target, WORLD), stand_ins.standing(Alone(rank, WORLD)):
        for op, fields in CALLS:
            case = Case(op, [x] * WORLD, fields)
            found = issue(case, put(x))
            if not set(opcodes([found])).isdisjoint({"map"}):
                wrong.append(f"{case}: a stand-in is in the program")
            if not np.allclose(take(found), meaning(case)[rank]):
                wrong.append(f"{case}: {take(found)}")
    assert not wrong, "\n".join(wrong)


def test_the_program_is_the_targets():
    """Also of what runs it several times, and beside what is no collective."""
    x = torch.arange(64.0, device=torch_xla.device()).reshape(8, 8)
    seen = []
    for read in (False, True):
        with torch_xla_cc.lowering_for("tpu:v5e:2x4"), stand_ins.standing(Alone(3, WORLD)):
            y = torch_xla_cc.xla_model.all_reduce("sum", x * 2)
            y = torch_xla_cc.xla_model.all_reduce("sum", y) + 1
            part = rank_slice.rank_slice(y, 0, 1, [*range(WORLD)])
            if read:
                assert part.tolist() == [[2.0 * 64 * v + 1 for v in range(24, 32)]]
            else:
                seen = opcodes([part])
    assert seen.count("all-reduce") == 2 and seen.count("replica-id") == 1
    assert "map" not in seen
