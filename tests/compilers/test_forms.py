"""Reports of what the compilers of TPUs and GPUs make of programs: fusions, overlap, combining."""

import pytest
import test_aot
import torch
import torch_xla
from test_aot import INSTALL, V5E, needs_libtpu
from test_aot_gpu import H100, needs_plugin

import torch_xla_cc
from torch_xla_cc import _aot
from torch_xla_cc import xla_model as xm
from torch_xla_cc._hlo import text
from torch_xla_cc._hlo.collectives import finder
from torch_xla_cc._inspect import trace

V4 = "tpu:v4:2x2x2"


def tensors(count, *shape, dtype=torch.float32):
    made = [torch.zeros(shape, dtype=dtype, device=torch_xla.device()) for _ in range(count)]
    torch_xla.sync()
    return made


@pytest.fixture(scope="module")
def forward():
    """Of four layers, each of which gathers its weights: FSDP."""
    (x,) = tensors(1, 1024, 2048, dtype=torch.bfloat16)
    weights = tensors(4, 256, 2048, dtype=torch.bfloat16)

    def step():
        y = x
        for weight in weights:
            y = (y @ xm.all_gather(weight)).relu()
        return y

    return step


LINE = "test_forms.py:{}"


@needs_libtpu
# The first has nothing to run beside it; of v6e's four the compiler takes two.
@pytest.mark.parametrize(("target", "overlapped"), [(V5E, 3), ("tpu:v6e:2x4", 2), (V4, 3)])
def test_gathers_beside_matmuls(forward, target, overlapped):
    report = torch_xla_cc.assert_overlaps(forward, opcode="all-gather", count=3, target=target) if (
        overlapped == 3
    ) else torch_xla_cc.assert_overlaps(forward, count=2, target=target)
    line = LINE.format(forward.__code__.co_firstlineno + 3)
    made = report.summary
    assert (made.traced, made.kept, made.instructions) == (4, 4, 4)
    assert (made.overlapped, made.waits) == (overlapped, 4 - overlapped)
    assert made.link_bytes == made.fewest_link_bytes == sum(row.link_bytes for row in report.rows)
    beside = {one for row in report.rows for one in row.meanwhile}
    assert beside == {f"fusion (convolution) of {line}"}
    assert "4 of 4 collectives kept" in report.to_text()
    with pytest.raises(AssertionError) as error:
        torch_xla_cc.assert_overlaps(forward, target=target)
    assert f"expected 4 beside a computation, found {overlapped} of 4" in str(error.value)
    assert str(error.value).count(f"of {line} waits") == 4 - overlapped
