"""all_to_all over 128 and more v5e chips, and what is built of it: exchanges in two stages."""

import pytest
import torch
import torch_xla

import torch_xla_cc
from torch_xla_cc import _C, FallbackForbidden, _aot, lowering_for
from torch_xla_cc import xla_model as xm

pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")

TARGETS = {"tpu:v5e:8x16": (128, 8, 16), "tpu:v5e:16x16": (256, 16, 16)}
F32, S64 = 11, 5
EXCHANGES = ["all-to-all"] * 2


@pytest.mark.parametrize("target", TARGETS)
def test_exchange(target):
    world, rows, columns = TARGETS[target]
    shape = [world * 8, 1024]
    with lowering_for(target):
        lowered = _C.lower_all_to_all([(F32, shape)], 0, 0, None, None)
    assert (lowered["rule"], lowered["opcodes"]) == ("fallback", EXCHANGES)
    block = 8 * 1024 * 4
    stages = [world // columns * (columns - 1), world // rows * (rows - 1)]
    assert lowered["wire_bytes"] == sum(stages) * block
    # In one stage 256 chips take it more than half a minute.
    program = _aot.compile_hlo(lowered["bytes"], target, timeout_s=60)
    found = _aot.collectives(program)
    assert [one.opcode for one in found] == EXCHANGES
    assert [len(group) for one in found for group in one.groups[:1]] == [columns, rows]


@pytest.mark.parametrize("target", TARGETS)
def test_reductions_of_64_bits_are_built_of_it(target):
    world, *_ = TARGETS[target]
    shape = [world * 1024]
    size = world * 1024 * 8
    with lowering_for(target):
        whole = _C.lower_all_reduce([(S64, shape)], "max", 1.0, 1.0, None)
        part = _C.lower_reduce_scatter([(S64, shape)], "max", 1.0, 1.0, 0, None, None)
    gathers = whole["opcodes"][2:]  # along each axis, in as many parts
    assert (part["opcodes"], whole["opcodes"][:2]) == (EXCHANGES, EXCHANGES)
    assert gathers and set(gathers) == {"all-gather"}
    assert part["wire_bytes"] < 2 * size and whole["wire_bytes"] < 3 * size
    program = _aot.compile_hlo(whole["bytes"], target, timeout_s=60)
    found = [one.opcode for one in _aot.collectives(program)]
    assert found.count("all-to-all") == 4  # 64 bits are two halves


def test_groups_are_as_worlds_of_their_size():
    halves = [list(range(at, at + 128)) for at in (0, 128)]
    squares = [list(range(at, at + 64)) for at in range(0, 256, 64)]
    with lowering_for("tpu:v5e:16x16"):
        for groups, wanted in ((halves, EXCHANGES), (squares, EXCHANGES[:1])):
            lowered = _C.lower_all_to_all([(F32, [1 << 20])], 0, 0, None, groups)
            assert lowered["opcodes"] == wanted


def test_it_is_said():
    x = torch.ones(1 << 20, device=torch_xla.device())
    with lowering_for("tpu:v5e:16x16"):
        with pytest.raises(FallbackForbidden, match=r"the TPU compiler takes .* to compile each"):
            xm.all_to_all(x, 0, 0, fallback="error")
        with torch_xla_cc.record() as calls:
            xm.all_to_all(x, 0, 0, fallback="allow")
    assert (calls[0].rule, calls[0].op) == ("fallback", "all_to_all")
    assert "to compile" in calls[0].why
