"""HLO text and XLA's interchange format, read into the same records."""

import itertools
import tracemalloc

import pytest

from torch_xla_cc._hlo import attributes, text
from torch_xla_cc._hlo.collectives import finder
from torch_xla_cc._hlo.instruction import Array, arrays, bits

MODULE = """HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[4]{0})->f32[8]{0}}, \
num_partitions=8, replica_count=2

FileNames
1 "<embedded module>"
2 "/x/y.py"

FunctionNames
1 "main"

FileLocations
1 {file_name_id=2 function_name_id=1 line=153 end_line=153 column=2 end_column=31}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

%sum.1 (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(f32[] %a, f32[] %b)
}

ENTRY %main.5 (p: f32[4], q: f32[16,4]) -> f32[8] {
  %p = f32[4]{0:T(256)S(1)} parameter(0)
  %q = f32[16,4]{1,0} parameter(1)
  %table = s32[2,2]{1,0} constant({ { 1, 2 }, { 3, ) } })
  %start = (f32[4]{0}, f32[8]{0}, /*index=2*/u32[]) all-gather-start(f32[4]{0:T(256)S(1)} %p), \
channel_id=3, replica_groups=[2,4]<=[4,2]T(1,0), dimensions={0}, \
metadata={op_name="q" stack_frame_id=1}
  %twice = f32[16,4]{1,0} multiply(f32[16,4]{1,0} %q, f32[16,4]{1,0} %q)
  %reduced = f32[4] all-reduce(p), replica_groups={{0,1},{2,3}}, to_apply=%sum.1, \
metadata={op_name="a\\"b" source_file="z.py" source_line=3}
  %moved = f32[4]{0} collective-permute(%p), channel_id=4, source_target_pairs={{0,1},{1,0}}
  ROOT %done = f32[8]{0} all-gather-done((f32[4]{0}, f32[8]{0}, u32[]) %start)
}
"""


def read(source):
    reader = text.Reader(source.splitlines())
    return reader, {one.name: one for one in reader.computations()}


def test_a_module():
    reader, computations = read(MODULE)
    assert reader.header == text.Header("jit_f", True, 2, 8)
    assert list(computations) == ["sum.1", "main.5"]
    (add,) = computations["sum.1"].instructions[2:]
    assert [x.name for x in add.operands] == ["a", "b"] and add.shape == "f32[]"

    main = {one.name: one for one in computations["main.5"].instructions}
    assert computations["main.5"].is_entry and main["p"].in_entry
    assert main["p"].shape == "f32[4]" and main["p"].layout == "0:T(256)"
    start = main["start"]
    assert start.groups == ((0, 2, 4, 6), (1, 3, 5, 7)) and start.channel_id == 3
    assert start.shape == "(f32[4], f32[8], u32[])" and start.dimensions == (0,)
    assert (start.source.file, start.source.line) == ("/x/y.py", 153)
    assert main["reduced"].called == ("sum.1",) and main["reduced"].groups == ((0, 1), (2, 3))
    source = main["reduced"].source
    assert (source.op_name, source.file, source.line) == ('a\\"b', "z.py", 3)
    assert main["moved"].pairs == ((0, 1), (1, 0))
    assert main["done"].operands == [start]


def test_its_collectives():
    _, computations = read(MODULE)
    gathered, reduced, moved = finder(computations.values()).found()
    assert gathered.opcode == "all-gather" and gathered.asynchronous
    assert gathered.operands == (Array("f32", (4,)),) and gathered.results == (Array("f32", (8,)),)
    assert [one.name for one in gathered.meanwhile] == ["twice"]
    assert not reduced.asynchronous and reduced.meanwhile == [] and reduced.groups
    assert moved.pairs == ((0, 1), (1, 0)) and moved.source.line == 0


WRAPPED = """HloModule m
%inner (x: f32[8]) -> f32[32] {
  %x = f32[8] parameter(0)
  ROOT %ag = f32[32] all-gather(%x), replica_groups=[1,4]<=[4], dimensions={0}
}
%region (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}
%half (x: f32[32]) -> f32[8] {
  %x = f32[32] parameter(0)
  %zero = s32[] constant(0)
  %ar = f32[32] all-reduce(%x), replica_groups={}, to_apply=%region
  ROOT %ds = f32[8] dynamic-slice(%ar, %zero), dynamic_slice_sizes={8}
}
ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8] parameter(0)
  %begun = ((f32[8]), f32[32], u32[]) async-start(%x), calls=%inner
  %on = ((f32[8]), f32[32], u32[]) async-update(%begun)
  %work = f32[8] negate(%x)
  %ended = f32[32] async-done(%on)
  ROOT %piece = f32[8] fusion(%ended), kind=kCustom, calls=%half
}
"""


def test_wrapped_collectives():
    _, computations = read(WRAPPED)
    gathered, scattered = finder(computations.values()).found()
    assert (gathered.opcode, gathered.asynchronous, gathered.in_entry) == ("all-gather", True, True)
    assert gathered.groups == ((0, 1, 2, 3),) and gathered.shape == "f32[32]"
    assert [one.name for one in gathered.meanwhile] == ["work"]
    assert (scattered.opcode, scattered.asynchronous) == ("reduce-scatter", False)
    assert scattered.groups == () and scattered.shape == "f32[8]"


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("{}", ()),
        ("{{0,1},{2,3}}", ((0, 1), (2, 3))),
        ("{ {0, 1}, {2} }", ((0, 1), (2,))),
        ("[2,2]<=[4]", ((0, 1), (2, 3))),
        ("[2,2]<=[2,2]T(1,0)", ((0, 2), (1, 3))),
        ("[4,2]<=[2,2,2]T(2,0,1)", ((0, 2), (4, 6), (1, 3), (5, 7))),
    ],
)
def test_groups(written, found):
    assert attributes.groups(written) == found


@pytest.mark.parametrize(
    "written",
    [
        "",
        "0,1",
        "{0,1}",
        "{{0,1}",
        "{{0,-1}}",
        "{{a}}",
        "[2]<=[2]",
        "[2,3]<=[4]",
        "[2,2]<=[2,2]T(1)",
        "[2,2]<=[2,2]T(0,0)",
        "[99999999,99999999]<=[99999999,99999999]",
        "{{%s}}" % ("9" * 5000),
    ],
)
def test_groups_that_are_none(written):
    with pytest.raises(ValueError):
        attributes.groups(written)


def test_types():
    assert arrays("(bf16[2,3]{1,0:T(8,128)(2,1)}, /*index=1*/(pred[], s4[5]{0}), token[])") == (
        Array("bf16", (2, 3)),
        Array("pred", ()),
        Array("s4", (5,)),
        Array("token", ()),
    )
    assert [x.bytes for x in arrays("(bf16[2,3], pred[], s4[5], token[], f8e4m3fn[7])")] == [
        12,
        1,
        3,
        0,
        7,
    ]
    assert arrays("f32[<=8,2]") == (Array("f32", (8, 2)),)
    widths = {"c64": 64, "c128": 128, "u2": 2, "f8e5m2fnuz": 8, "f4e2m1fn": 4, "huge99999": 0}
    assert {dtype: bits(dtype) for dtype in widths} == widths


HEAD = "HloModule m\n\nENTRY %e (p: f32[4]) -> f32[4] {\n  %p = f32[4] parameter(0)\n"


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        ("", 1, "expected 'HloModule name'"),
        ("hello\n", 1, "expected a computation"),
        ("HloModule m\nHloModule n\n", 2, "expected one 'HloModule name'"),
        (HEAD, 4, "computation e does not end"),
        (HEAD + "  what is this\n}\n", 5, "expected an instruction"),
        (HEAD + "  %x = f32[4]\n}\n", 5, "expected a type and an opcode"),
        (HEAD + "  %x = (f32[4] add(%p)\n}\n", 5, "expected a type and an opcode"),
        (HEAD + "  %x = f32[4] add(%p\n}\n", 5, "expected '\\)'"),
        (HEAD + "  %x = f32[4] add(%p, %y)\n}\n", 5, "operand 'y' is not defined before it"),
        (HEAD + "  %x = f32[4] all-reduce(%p), replica_groups=0\n}\n", 5, "replica_groups"),
        (HEAD + "  %x = f32[4] all-reduce(%p), replica_groups={0}\n}\n", 5, "replica groups '{0}'"),
        ("HloModule m\n\nFileNames\nx\n", 4, "expected a row of FileNames"),
    ],
)
def test_errors_say_where(source, line, says):
    with pytest.raises(text.HloSyntaxError, match=says) as raised:
        read(source)
    assert raised.value.line == line and raised.value.column >= 1
    assert str(raised.value).startswith(f"line {line}, column ")


def test_a_large_module_is_not_held():
    """A stream of 40 MB, of which one computation is in memory at a time."""

    def lines():
        yield "HloModule large\n"
        for number in range(4000):
            yield f"%c{number} (p: f32[4]) -> f32[4] {{\n"
            yield "  %p0 = f32[4]{0} parameter(0)\n"
            for at in range(1, 100):
                yield f"  %p{at} = f32[4]{{0}} add(%p{at - 1}, f32[4]{{0}} %p0), m={at}\n"
            yield "}\n"

    tracemalloc.start()
    try:
        count = sum(len(one.instructions) for one in text.Reader(lines()).computations())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 400_000
    assert peak < 2 << 20


@pytest.mark.parametrize("piece", ["(", "{", "((", "%a,", "/*", '"', "[", "{{0,1},", "\\"])
def test_long_lines_take_no_longer_than_their_length(piece):
    """Nothing in the reader tries a line again and again."""
    for before, after in itertools.product(
        ("  %x = ", "  %x = f32[4] add(", "%c "), ("", ")", "}")
    ):
        source = HEAD + before + piece * 200_000 + after + "\n}\n"
        with pytest.raises(text.HloSyntaxError):
            read(source)
