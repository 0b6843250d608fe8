"""What TPU and GPU compilers make of collectives, read from text and from protos: the same."""

import pytest
from test_aot import COLLECTIVES, INSTALL, V5E, collective, needs_libtpu
from test_aot_gpu import H100, needs_plugin

from torch_xla_cc import _aot
from torch_xla_cc._hlo import text
from torch_xla_cc._hlo.collectives import finder


def fields(computations):
    """What both have, of every instruction."""
    return {
        # What has no schedule may be printed in another order.
        (computation.name, computation.is_entry): sorted(
            (
                one.name,
                one.opcode,
                one.shape,
                one.layout,
                [operand.name for operand in one.operands],
                sorted(one.called),
                one.custom_call_target,
                one.channel_id,
                one.groups or (),
                one.pairs or (),
                one.dimensions,
                one.source.op_name,
                one.source.file,
                one.source.line,
            )
            for one in computation.instructions
        )
        for computation in computations
    }


def collectives(computations):
    return [
        (
            one.opcode,
            one.asynchronous,
            one.operands,
            one.groups or (),
            one.pairs or (),
            one.dimensions,
            one.source,
            [step.opcode for step in one.meanwhile],
        )
        for one in finder(computations).found()
    ]


@pytest.mark.parametrize(
    "target",
    [pytest.param(V5E, marks=needs_libtpu), pytest.param(H100, marks=needs_plugin)],
)
def test_text_and_proto_are_the_same(target):
    pytest.importorskip("jaxlib", reason=f"jaxlib is not installed: {INSTALL}")
    modules = [collective(opcode) for opcode in COLLECTIVES]
    for opcode, program in zip(COLLECTIVES, _aot.compile_many(modules, target), strict=True):
        reader = text.Reader(program.text().splitlines())
        read, parsed = list(reader.computations()), list(program.computations())
        # Text has a short form of async-start, without the computation that it calls.
        if not any(one.opcode == "async-start" for one in program.instructions()):
            assert fields(read) == fields(parsed), opcode
        assert collectives(read) == collectives(parsed), opcode
        assert reader.header.scheduled
