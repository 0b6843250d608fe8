"""HLO that is none: an error with its place, in bounded time, and nothing else.

`make hunt` reads many times as many cases.
"""

import string
import time

import effort
import pytest
from hypothesis import strategies as st
from test_compare import GATHER, MODULE, REDUCE

from torch_xla_cc._hlo import proto
from torch_xla_cc._hlo import protobuf as _hlo_pb
from torch_xla_cc._hlo.collectives import finder
from torch_xla_cc._hlo.text import HloSyntaxError, Reader
from torch_xla_cc._inspect import html, report, rows

CASES = 500
LIMIT_S = 2.0  # for a case of some kilobytes; usual are milliseconds

SENDS = """  %t = token[] after-all()
  %send = (f32[8,4]{1,0}, u32[], token[]) send(%x, %t), channel_id=5, \
frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2}}"}
  %sent = token[] send-done(%send), channel_id=5
  %start = (f32[8,4]{1,0}, f32[32,4]{1,0}) all-gather-start(%x), \
replica_groups=[2,2]<=[2,2]T(1,0), \
dimensions={0}
  %done = f32[32,4]{1,0} all-gather-done(%start)
  %p = f32[8,4]{1,0} collective-permute(f32[8,4]{1,0} %x), source_target_pairs={{0,1},{1,0}}
  ROOT %v = (f32[8,4]{1,0}, f32[8,4]{1,0}) all-to-all(%x, %p), replica_groups={{0,1},{2,3}}"""
TEXT = MODULE.format(
    name="step, is_scheduled=true",
    body="\n".join((REDUCE.format(3), GATHER.format(4), SENDS)),
)
PIECES = [
    *'{}()[]=,%"\\<>\n \t/*',
    *(
        "ENTRY",
        "HloModule",
        "FileNames",
        "metadata={",
        "replica_groups=",
        "[2,2]<=[4]",
        "f32[",
        "-1",
    ),
    *(
        "999999999999999999999",
        "all-reduce(",
        "}}}}",
        "{{{{",
        "T(1,0)",
        "\x00",
        "\u2028",
        "é",
        '="',
    ),
]
EDIT = st.tuples(
    st.floats(0, 1),
    st.integers(0, 40),
    st.one_of(st.sampled_from(PIECES), st.text(string.printable, max_size=8), st.just("copy")),
    st.integers(1, 30),
)


def edited(text, edits):
    for where, length, piece, times in edits:
        at = int(where * len(text))
        cut = text[at : at + length]
        text = text[:at] + (cut if piece == "copy" else piece) * times + text[at + length :]
    return text


def read(text):
    """The rows of the text; None if it is not HLO."""
    begun = time.process_time()
    reader = Reader(text.splitlines())
    try:
        found = finder(reader.computations()).found()
    except HloSyntaxError as error:
        assert error.line >= 1 and error.column >= 1 and f"line {error.line}" in str(error)
        return None
    finally:
        assert time.process_time() - begun < LIMIT_S
    return rows.rows(found, found, 4)


def test_what_is_edited_is_right():
    made = read(TEXT)
    assert [row.after for row in made] == [
        "all-reduce",
        "all-gather",
        "send",
        "all-gather",
        "collective-permute",
        "all-to-all",
    ]


@effort.for_each(CASES, st.lists(EDIT, min_size=1, max_size=8))
def test_text(edits):
    read(edited(TEXT, edits))


@effort.for_each(CASES, st.text(max_size=2000))
def test_any_text(text):
    read(text)


def to_proto():
    """A module of the same kind in XLA's interchange format."""
    module = _hlo_pb.HloModuleProto(name="step", entry_computation_id=1)
    main = module.computations.add(name="main", id=1, root_id=2)
    for i, opcode in ((1, "parameter"), (2, "all-reduce"), (3, "all-gather-start")):
        one = main.instructions.add(name=f"i{i}", opcode=opcode, id=i)
        one.shape.element_type = 11
        one.shape.dimensions.extend([8, 4])
        one.metadata.op_name = "grads"
        if i > 1:
            one.operand_ids.append(1)
            one.replica_groups.add(replica_ids=[0, 1])
            devices = one.collective_device_list.iota_replica_group_list
            devices.num_replica_groups, devices.num_devices_per_group = 2, 2
            devices.iota_reshape_dims.extend([4])
            devices.iota_transpose_perm.extend([0])
    return module.SerializeToString()


PROTO = to_proto()


@effort.for_each(
    CASES,
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 8), st.binary(max_size=8)), min_size=1),
)
def test_protos(edits):
    data = PROTO
    for where, length, piece in edits:
        at = int(where * len(data))
        data = data[:at] + piece + data[at + length :]
    begun = time.process_time()
    try:
        found = finder(proto.computations(_hlo_pb.HloModuleProto.FromString(data))).found()
        rows.rows(found, found, 4)
    except (ValueError, _hlo_pb.DecodeError):
        pass
    assert time.process_time() - begun < LIMIT_S


@pytest.mark.parametrize("place", ["module", "name", "call", "file"])
def test_html_escapes(place):
    evil = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    text = TEXT.replace("grads", evil.replace('"', '\\"')) if place == "call" else TEXT
    if place == "file":
        text = text.replace("train.py", "/" + evil.replace('"', "&quot;"))
    if place == "name":
        text = text.replace("%r.3", '%"><script>alert')
    made = rows.rows(*(2 * [finder(Reader(text.splitlines()).computations()).found()]), 4)
    name = evil if place == "module" else "step"
    shown = html.page([report.Report(name, evil, 4, tuple(made), lengths={"main": 9})])
    assert "<script" not in shown and "<img" not in shown and 'href="file:///"' not in shown
