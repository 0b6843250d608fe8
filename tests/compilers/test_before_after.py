"""The figures of docs/img/before_after.svg, which README.md begins with."""

import re
from pathlib import Path

import pytest
import torch
import torch_xla.core.xla_model as stock
from torch_xla import runtime

import torch_xla_cc
from torch_xla_cc import xla_model as ours

pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")

PICTURE = Path(__file__).parents[2] / "docs/img/before_after.svg"


def report(xm):
    weights = [torch.zeros(256, 2048, dtype=torch.bfloat16, device="xla") for _ in range(4)]
    x = torch.zeros(1024, 2048, dtype=torch.bfloat16, device="xla")

    def step():
        y = x
        for weight in weights:
            y = (y @ xm.all_gather(weight)).relu()
        return y

    return torch_xla_cc.inspect(step, target="tpu:v5e:2x4")


def test_the_figures(monkeypatch):
    after = report(ours)
    with monkeypatch.context() as made:  # torch_xla pads by the rank, and knows of one device here
        made.setattr(runtime, "world_size", lambda: 8)
        made.setattr(runtime, "global_ordinal", lambda: 3)
        before = report(stock)
    assert before.counts == {"all-reduce": 1} and before.summary.overlapped == 0
    assert before.rows[0].operands == ("bf16[2048,2048]",) * 4
    assert after.counts == {"all-gather": 4} and after.summary.overlapped == 3
    text = PICTURE.read_text()
    assert f"each chip receives {before.wire_bytes / 1e6:.1f} MB; nothing is hidden" in text
    assert f"each chip receives {after.wire_bytes / 1e6:.1f} MB; 3 of 4" in text
    # Transfers are drawn to scale: a bar leaves two units to the next.
    bars = re.findall(r'<rect class="(?:net|good)" x="\d+" y="\d+" width="(\d+)"', text)
    widths = [int(bar) + 2 for bar in bars]
    assert widths[0] == pytest.approx(8 * widths[1], rel=0.05)
    assert len(set(widths[1:])) == 1 and len(widths) == 5
