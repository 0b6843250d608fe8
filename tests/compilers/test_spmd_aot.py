"""Collectives between partitions on a TPU: what its compiler makes of them, and of JAX's."""

import collections
import os
import subprocess
import sys

import numpy as np
import pytest
import spmd_programs
import torch
import torch_xla
import worlds

import torch_xla_cc
from torch_xla_cc import _aot, spmd
from torch_xla_cc import xla_model as xm
from torch_xla_cc._hlo import protobuf as _hlo_pb

pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")

TARGET = "spmd:tpu:v5e:2x2"
PAIRS = [(0, 1), (1, 2), (2, 3), (3, 0)]
SIZES = [[1, 2, 3, 2], [0, 4, 4, 0], [8, 0, 0, 0], [2, 2, 2, 2]]


@pytest.fixture(scope="module")
def world():
    with worlds.partitions(4) as one:
        yield one


CALLS = {
    "all-gather": lambda x: xm.all_gather(x),
    "all-reduce": lambda x: xm.all_reduce("sum", x),
    "collective-permute": lambda x: xm.collective_permute(x, PAIRS),
    "all-to-all": lambda x: xm.all_to_all(x, 0, 1),
    "ragged-all-to-all": lambda x: xm.uneven_all_to_all(x, SIZES, padded=True),
}


def rows(opcode):
    """Of the program with one call: the rows of the report."""
    from torch_xla.distributed.spmd import Mesh

    mesh = Mesh(np.arange(4), (4,), ("x",))
    x = torch.ones(32, 128, device=torch_xla.device())
    call = spmd.shard_map(CALLS[opcode], mesh, [("x", None)], ("x", None))
    report = torch_xla_cc.inspect(lambda: call(x).sum(), target=TARGET)
    return [
        (row.after, row.rule, row.groups, row.pairs, row.channel_id)
        for row in report.rows
        if row.before
    ]


@pytest.mark.parametrize("opcode", CALLS)
def test_each_is_the_instruction(world, opcode):
    ((after, rule, groups, pairs, channel),) = world.run(rows, opcode)
    assert after == opcode
    assert rule == "native"
    assert pairs == tuple(PAIRS) if opcode == "collective-permute" else groups == ((0, 1, 2, 3),)
    assert channel > 0


def programs():
    """The HLO of each program's sum, lowered for the TPU, before XLA has partitioned it."""
    found = {}
    for name, program in spmd_programs.PROGRAMS.items():
        with torch_xla_cc.lowering_for(TARGET):
            mapped, tensors = spmd_programs.mapped_in_torch(program)
            # A whole result would be gathered: torch_xla's executor says otherwise, this does not.
            result = mapped(*tensors).sin().sum()
            found[name] = torch_xla._XLAC._get_xla_tensors_hlo_proto([result])
    return found


def opcodes(module):
    """How many of each collective there are in what the compiler makes of it."""
    found = _aot.collectives(_aot.compile_hlo(module, TARGET))
    return collections.Counter(one.opcode for one in found)


def test_programs_become_what_those_of_jax_do(world, tmp_path):
    file = tmp_path / "programs.npz"
    subprocess.run(
        [sys.executable, spmd_programs.__file__, "hlo", str(file)],
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        },
        check=True,
        capture_output=True,
        timeout=240,
    )
    theirs = np.load(file)
    ours = world.run(programs)
    for name, module in ours.items():
        assert _hlo_pb.HloModuleProto.FromString(module).computations
        assert opcodes(module) == opcodes(theirs[name].tobytes()), name
