"""The uneven ops as the TPU's real compiler has them: which collectives are left, of what bytes.

Rows are of 1 KiB times 4, so that bytes and not the number of instructions decide.
"""

import pytest

from torch_xla_cc import _C, _aot, lowering_for

pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")

F32 = 11
WIDTH = 1024
BALANCED = [512, 511, 512, 510, 512, 512, 509, 512]
SKEWED = [1, 1, 993, 1, 1, 1, 1, 1]
SPIKE = [[9000 if (i, j) == (2, 5) else 1 for j in range(16)] for i in range(16)]
EVEN = [[300] * 16] * 16
UNEQUAL = [[0, 1, 2], [3, 4, 5, 6, 7]]
INSIDE = [[100 + j if (i < 3) == (j < 3) else 0 for j in range(8)] for i in range(8)]

# name: (target, op, fields, rows of the operand, opcodes in the optimised program)
FORMS = {
    "gather balanced": ("tpu:v5e:2x4", "all_gather", (BALANCED, None), 512, {"all-gather": 1}),
    "gather skewed": ("tpu:v5e:2x4", "all_gather", (SKEWED, None), 993, {"all-reduce": 1}),
    "scatter balanced": (
        "tpu:v5e:2x4",
        "reduce_scatter",
        ("sum", 1.0, 1.0, BALANCED, None),
        sum(BALANCED),
        {"reduce-scatter": 1},
    ),
    "scatter skewed": (
        "tpu:v5e:2x4",
        "reduce_scatter",
        ("sum", 1.0, 1.0, SKEWED, None),
        1000,
        {"reduce-scatter": 1, "all-gather": 1},  # the compiler's halves of an all-reduce
    ),
    "exchange of equal blocks": (
        "tpu:v5e:4x4",
        "all_to_all",
        (EVEN, None),
        4800,
        {"all-to-all": 1},
    ),
    "exchange of one pair": (
        "tpu:v5e:4x4",
        "all_to_all",
        (SPIKE, None),
        9015,
        {"collective-permute": 15},
    ),
    "exchange in unequal groups": (
        "tpu:v6e:2x4",
        "all_to_all",
        (INSIDE, UNEQUAL),
        max(map(sum, INSIDE)),
        {"ragged-all-to-all": 1},
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_collectives_that_are_left(name):
    target, op, fields, rows, wanted = FORMS[name]
    with lowering_for(target):
        lower = getattr(_C, f"lower_uneven_{op}")
        described = lower([(F32, [rows, WIDTH])], *fields)
    program = _aot.compile_hlo(described["bytes"], target)
    opcodes = [one.opcode for one in _aot.collectives(program)]
    assert {opcode: opcodes.count(opcode) for opcode in opcodes} == wanted
