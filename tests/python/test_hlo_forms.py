"""Forms that compilers give collectives: fusions, parts of several, loops, and other orders.

As libtpu 0.0.21 and the CUDA plugin 0.7.1 print them, shortened.
tests/compilers/test_combined.py asks the compilers themselves.
"""

import pytest

from torch_xla_cc._hlo import proto, protobuf, text
from torch_xla_cc._hlo.collectives import finder

SUM = """HloModule m, is_scheduled=true
%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}
"""


def collectives(source):
    return finder(text.Reader(source.splitlines()).computations()).found()


# What a chain hands on is (operand, result, flag); what computes beside it gives one more.
PARTS = (
    SUM
    + """
%begin (p: f32[8]) -> (f32[8], f32[64], u32[]) {
  %p = f32[8] parameter(0)
  %ag = f32[64] all-gather(%p), replica_groups=[1,8]<=[8], dimensions={0}, \
metadata={op_name="gather" source_file="train.py" source_line=7}
  ROOT %c = (f32[8], f32[64], u32[]) custom-call(%ag), custom_call_target="AsyncCollectiveStart"
}
%async_collective_fusion.1 (p: f32[8], q: f32[64], f: u32[], x: f32[8,8]) -> \
(f32[8,8], f32[8], f32[64], u32[]) {
  %p = f32[8] parameter(0)
  %q = f32[64] parameter(1)
  %f = u32[] parameter(2)
  %x = f32[8,8] parameter(3)
  %ag = f32[64] all-gather(%p), replica_groups=[1,8]<=[8], dimensions={0}
  %y = f32[8,8] convolution(%x, %x), dim_labels=bf_io->bf
  ROOT %t = (f32[8,8], f32[8], f32[64], u32[]) tuple(%y, %p, %ag, %f)
}
%end (p: f32[8], q: f32[64], f: u32[]) -> f32[64] {
  %p = f32[8] parameter(0)
  %q = f32[64] parameter(1)
  %f = u32[] parameter(2)
  %ag = f32[64] all-gather(%p), replica_groups=[1,8]<=[8], dimensions={0}
  ROOT %c = f32[64] custom-call(%p, %q, %ag, %f), custom_call_target="AsyncCollectiveDone"
}
"""
)
MAIN = "ENTRY %main (p: f32[8], x: f32[8,8]) -> f32[64] {\n"
MAIN += "  %p = f32[8] parameter(0)\n  %x = f32[8,8] parameter(1)\n"
STATE, MORE = "(f32[8], f32[64], u32[])", "(f32[8,8], f32[8], f32[64], u32[])"


def handed_on(number, of, first=0):
    """What is taken out of a part, and the names of it."""
    types = ("f32[8]", "f32[64]", "u32[]")
    lines = [
        f"  %{name}{number} = {types[i]} get-tuple-element(%{of}), index={first + i}\n"
        for i, name in enumerate("pqf")
    ]
    return "".join(lines), ", ".join(f"%{name}{number}" for name in "pqf")


def begins(number):
    lines, names = handed_on(number, f"begin{number}")
    return f"  %begin{number} = {STATE} fusion(%p), kind=kCustom, calls=%begin\n{lines}", names


def goes_on(number, names, x):
    """A part that computes with x; what it gives is %y and the number."""
    line = f"  %on{number} = {MORE} fusion({names}, {x}), kind=kOutput, "
    line += "calls=%async_collective_fusion.1, "
    line += f'metadata={{op_name="mm" source_file="train.py" source_line={number}}}\n'
    lines, names = handed_on(number, f"on{number}", 1)
    given = f"  %y{number} = f32[8,8] get-tuple-element(%on{number}), index=0\n"
    return line + lines + given, names


def ends(number, names):
    return f"  %end{number} = f32[64] fusion({names}), kind=kCustom, calls=%end\n"


def test_a_collective_that_is_spread_over_fusions():
    begin, one = begins(1)
    first, one = goes_on(11, one, "%x")
    second, one = goes_on(12, one, "%y11")
    own = "  %plain = f32[8,8] negate(%x)\n"  # it does not move on in this
    (found,) = collectives(PARTS + MAIN + begin + first + own + second + ends(1, one) + "}\n")
    assert (found.opcode, found.asynchronous, found.groups) == (
        "all-gather",
        True,
        (tuple(range(8)),),
    )
    assert (found.operand_bytes, found.shape, found.source.line) == (32, "f32[64]", 7)
    assert [(one.name, one.holds, one.source.line) for one in found.meanwhile] == [
        ("on11", "convolution", 11),
        ("on12", "convolution", 12),
    ]


def test_two_of_them_at_a_time():
    (begin, one), (again, two) = begins(1), begins(2)
    first, one = goes_on(11, one, "%x")
    second, two = goes_on(12, two, "%y11")  # takes what the other has computed, and no flag of it
    body = begin + again + first + second + ends(2, two) + ends(1, one)
    a, b = collectives(PARTS + MAIN + body + "}\n")
    assert [one.name for one in a.meanwhile] == ["on11"] and a.last.name == "end1"
    assert [one.name for one in b.meanwhile] == ["on12"] and b.last.name == "end2"


def test_what_takes_a_result_is_no_part():
    begin, one = begins(1)
    first, one = goes_on(11, one, "%x")
    more = "  %z = f32[8] bitcast(%y11)\n"
    more += f"  %begin9 = {STATE} fusion(%z), kind=kCustom, calls=%begin\n"
    found = collectives(PARTS + MAIN + begin + first + more + ends(1, one) + "}\n")
    assert [one.name for one in found] == ["begin1", "begin9"]
    assert found[0].asynchronous and not found[1].meanwhile


def test_one_that_ends_in_another_turn_of_a_loop_is_counted_where_it_begins():
    body = f"%body (s: {STATE}) -> {STATE} {{\n  %s = {STATE} parameter(0)\n"
    lines, names = handed_on(0, "s")
    body += lines + ends(0, names)
    body += f"  %p = f32[8] bitcast(%p0)\n  ROOT %b = {STATE} fusion(%p), calls=%begin\n}}\n"
    begin, one = begins(1)
    first, one = goes_on(11, one, "%x")
    loop = f"  %h = {STATE} tuple({one})\n"
    loop += f"  ROOT %w = {STATE} while(%h), condition=%sum, body=%body\n"
    found = collectives(PARTS + body + MAIN + begin + first + loop + "}\n")
    assert [(one.name, one.in_loop) for one in found] == [("b", True), ("begin1", False)]
    assert [one.name for one in found[1].meanwhile] == ["on11"]


# A fusion of an all-reduce: what it gives, and what it is.
TABLE = "  %k = u32[8] constant({0, 1, 0, 1, 0, 1, 0, 1})\n  %r = u32[] replica-id()\n"
TABLE += "  %d = u32[1] dynamic-slice(%k, %r), dynamic_slice_sizes={1}\n"
TABLE += "  %i = u32[] bitcast(%d)\n"
REDUCE = "%r{0} = f32[64] all-reduce(%{1}), replica_groups={{}}, to_apply=%sum\n"
BLOCK = "%b = f32[8] dynamic-slice(%{0}, %i), dynamic_slice_sizes={{8}}\n"
PLACED = "  %z = f32[] constant(0)\n  %n = f32[64] broadcast(%z), dimensions={}\n"
PLACED += "  %s = f32[8] slice(%x), slice={[0:8]}\n"
PLACED += "  %u = f32[64] dynamic-update-slice(%n, %s, %i)\n"
FUSIONS = {
    "reduce-scatter": "  " + REDUCE.format(1, "x") + "  ROOT " + BLOCK.format("r1"),
    "reduce-scatter, another form": "  %p = f32[64] pad(%x, %i)\n  "
    + REDUCE.format(1, "p")
    + "  %c = f32[64] bitcast(%r1)\n  "
    + BLOCK.format("c")
    + "  ROOT %e = f32[4] slice(%b), slice={[0:4]}\n",
    "all-gather": PLACED + "  ROOT " + REDUCE.format(1, "u"),
    "all-reduce": "  ROOT " + REDUCE.format(1, "x"),
    "all-reduce, of a block": "  "
    + BLOCK.format("x")
    + "  ROOT %r1 = f32[8] all-reduce(%b), replica_groups={}, to_apply=%sum\n",
    "all-reduce, whole as well": "  "
    + REDUCE.format(1, "x")
    + "  "
    + BLOCK.format("r1")
    + "  ROOT %t = (f32[64], f32[8]) tuple(%r1, %b)\n",
    "all-reduce, of data with a block": "  %s = f32[8] slice(%x), slice={[0:8]}\n"
    "  %u = f32[64] dynamic-update-slice(%x, %s, %i)\n  ROOT " + REDUCE.format(1, "u"),
}


@pytest.mark.parametrize("name", FUSIONS)
def test_halves_of_an_all_reduce(name):
    inner = "%f (x: f32[64]) -> f32[8] {\n  %x = f32[64] parameter(0)\n" + TABLE + FUSIONS[name]
    main = "}\nENTRY %main (x: f32[64]) -> f32[8] {\n  %x = f32[64] parameter(0)\n"
    main += "  ROOT %fusion = f32[8] fusion(%x), kind=kCustom, calls=%f\n}\n"
    (found,) = collectives(SUM + inner + main)
    assert found.opcode == name.partition(",")[0]


def test_an_all_reduce_before_a_slice_is_one():
    main = "ENTRY %main (x: f32[64]) -> f32[8] {\n  %x = f32[64] parameter(0)\n" + TABLE
    main += "  " + REDUCE.format(1, "x") + "  ROOT " + BLOCK.format("r1")
    (found,) = collectives(SUM + main + "}\n")
    assert found.opcode == "all-reduce"


def test_moves_to_fast_memory_are_no_computation():
    main = """ENTRY %main (x: f32[64]) -> f32[64] {
  %x = f32[64] parameter(0)
  %start = (f32[64], f32[64], u32[]) all-reduce-start(%x), replica_groups={}, to_apply=%sum
  %s = ((f32[64]), f32[8], s32[]) slice-start(%x), slice={[0:8]}
  %d = f32[8] slice-done(%s)
  ROOT %done = f32[64] all-reduce-done(%start)
}
"""
    (found,) = collectives(SUM + main)
    assert found.asynchronous and found.meanwhile == []


def test_the_order_of_a_proto_is_that_of_its_schedule():
    module = protobuf.HloModuleProto(name="m", entry_computation_id=1)
    computation = module.computations.add(name="main", id=1, root_id=4)
    rows = [(1, "parameter", []), (2, "all-gather-start", [1]), (3, "all-gather-done", [2])]
    rows += [(4, "negate", [1])]
    for number, opcode, operands in rows:
        computation.instructions.add(name=f"i{number}", id=number, opcode=opcode)
        computation.instructions[-1].operand_ids.extend(operands)
        computation.instructions[-1].shape.element_type = protobuf.PrimitiveType.F32
        computation.instructions[-1].shape.dimensions.append(8)

    def meanwhile():
        (found,) = finder(proto.computations(module)).found()
        return [one.name for one in found.meanwhile]

    assert meanwhile() == []
    module.schedule.sequences[1].instruction_ids.extend([1, 2, 4, 3])
    assert meanwhile() == ["i4"]
    module.schedule.sequences[1].instruction_ids.append(9)
    with pytest.raises(ValueError, match="schedule of computation 1"):
        meanwhile()
