"""Bytes on the wire, by hand."""

from fractions import Fraction

import pytest

from torch_xla_cc._hlo import text, traffic
from torch_xla_cc._hlo.collectives import finder
from torch_xla_cc._hlo.links import busiest
from torch_xla_cc._hlo.topology import topology_of

SUM = """HloModule m
%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}
ENTRY %main (x: f32[16]) -> f32[16] {
  %x = f32[16] parameter(0)
"""


def one(instruction, before=""):
    """The collective of a module that has one."""
    reader = text.Reader(f"{SUM}{before}  ROOT %r = {instruction}\n}}\n".splitlines())
    (found,) = finder(reader.computations()).found()
    return found


# 64 bytes on each of eight ranks: received by each, over a link.
ROWS = {
    "f32[128] all-gather(%x), replica_groups={}, dimensions={0}": (7 * 64, 7 * 32),
    "f32[64] all-gather(%x), replica_groups=[2,4]<=[8], dimensions={0}": (3 * 64, 3 * 32),
    "f32[2] reduce-scatter(%x), replica_groups={}, dimensions={0}, to_apply=%sum": (56, 28),
    "f32[16] all-reduce(%x), replica_groups={}, to_apply=%sum": (112, 56),
    "f32[16] all-reduce(%x), replica_groups={{0,1,2},{3,4,5,6,7}}, to_apply=%sum": (
        Fraction(4 * 2 * 64, 5),
        Fraction(4 * 64, 5),
    ),
    "f32[16] collective-broadcast(%x), replica_groups={{0,1,2,3,4,5,6,7}}": (64, 32),
    # A part of 8 bytes to those 1, 2 and 3 away, either way, and half of one to the opposite.
    "f32[16] all-to-all(%x), replica_groups={}, dimensions={0}": (56, 8 * (1 + 2 + 3 + 2)),
    "f32[16] all-to-all(%x), replica_groups={{0,1,2},{3,4,5}}, dimensions={0}": (
        Fraction(2 * 64, 3),
        Fraction(64, 3),
    ),
    "f32[16] all-reduce(%x), replica_groups={{0},{1}}, to_apply=%sum": (0, 0),
    "f32[16] collective-permute(%x), source_target_pairs={{0,1},{1,2},{2,0}}": (64, 64),
    "f32[16] collective-permute(%x), source_target_pairs={{0,0}}": (0, 0),
    # Four links away, either way: half of it on each.
    "f32[16] collective-permute(%x), source_target_pairs={{0,4}}": (64, 32),
    # 1 to 3 passes over the link from 2 to 3.
    "f32[16] collective-permute(%x), source_target_pairs={{1,3},{2,4}}": (64, 128),
}


@pytest.mark.parametrize("instruction", ROWS)
def test_bytes(instruction):
    received, link = ROWS[instruction]
    collective = one(instruction)
    assert traffic.received(collective, 8) == received
    assert busiest([collective], topology_of("", 8), 8) == round(link)
    by_target: dict[int, Fraction] = {}
    for _, target, amount in traffic.flows(collective, 8):
        by_target[target] = by_target.get(target, Fraction(0)) + amount
    assert max(by_target.values(), default=0) == received
