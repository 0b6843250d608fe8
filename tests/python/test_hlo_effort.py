"""What instructions read, write and multiply."""

import pytest

from torch_xla_cc._hlo import text
from torch_xla_cc._hlo.effort import Effort, effort, effort_of


def efforts(program):
    """Of the instructions of the entry, by name."""
    known = {}
    for computation in text.Reader(program.splitlines()).computations():
        if computation.is_entry:
            return {one.name: effort(one, known) for one in computation.instructions}
        known[computation.name] = effort_of(computation, known)
    raise AssertionError("no entry")


def entry(*lines):
    return "\n".join(["ENTRY main {", *(f"  {line}" for line in lines), "}"])


def product(left, right, gives, opcode="dot"):
    program = entry(
        f"a = {left} parameter(0)",
        f"b = {right} parameter(1)",
        f"ROOT c = {gives} {opcode}(a, b)",
    )
    return efforts(program)["c"]


@pytest.mark.parametrize("opcode", ["dot", "convolution"])
@pytest.mark.parametrize(
    ("left", "right", "gives", "products"),
    [
        ("bf16[8,32]", "bf16[32,5]", "f32[8,5]", 8 * 32 * 5),
        ("f32[32]", "f32[32]", "f32[]", 32),
        ("f32[7,8,32]", "f32[7,32,5]", "f32[7,8,5]", 5 * 7 * 8 * 32),  # of pairs
        ("f32[3,8,32]", "f32[32,5]", "f32[3,8,5]", 3 * 8 * 32 * 5),
        ("f32[1,8,32]", "f32[1,32,5]", "f32[1,8,5]", 8 * 32 * 5),
    ],
)
def test_products(opcode, left, right, gives, products):
    found = product(left, right, gives, opcode).products
    assert found == pytest.approx(products, abs=1)


def test_products_are_not_too_many():
    """Square matrices in pairs: which dimension pairs them is not known."""
    assert product("f32[2,64,64]", "f32[2,64,64]", "f32[2,64,64]").products <= 2 * 64**3


def test_products_of_a_gpus_calls():
    program = entry(
        "a = f32[8,32] parameter(0)",
        "b = f32[32,5] parameter(1)",
        'c = (f32[8,5], s8[100]) custom-call(a, b), custom_call_target="__cublas$gemm"',
        'ROOT d = f32[8,5] custom-call(a, b), custom_call_target="mine"',
    )
    found = efforts(program)
    assert found["c"] == Effort((1024, 640), 260, 1280)
    assert found["d"] == Effort((1024, 640), 160, 0)


def test_slices_read_what_they_give():
    program = entry(
        "a = f32[100,8] parameter(0)",
        "i = s32[] parameter(1)",
        "two = f32[2,8] parameter(2)",
        "b = f32[1,8] dynamic-slice(a, i, i), dynamic_slice_sizes={1,8}",
        "c = f32[3,8] slice(a), slice={[0:3], [0:8]}",
        "ROOT d = f32[100,8] dynamic-update-slice(a, two, i, i)",
    )
    found = efforts(program)
    assert found["b"] == Effort((32, 4, 4), 32, 0)
    assert found["c"] == Effort((96,), 96, 0)
    assert found["d"] == Effort((0, 64, 4, 4), 64, 0)


FUSED = """
inner {
  p = f32[100,8] parameter(0)
  i = s32[] parameter(1)
  wide = f32[800] bitcast(p)
  twice = f32[800] multiply(wide, wide)
  whole = f32[100,8] bitcast(twice)
  ROOT one = f32[1,8] dynamic-slice(whole, i, i), dynamic_slice_sizes={1,8}
}

outer {
  much = f32[100,8] parameter(0)
  at = s32[] parameter(1)
  row = f32[1,8] parameter(2)
  unused = f32[5000] parameter(3)
  one = f32[1,8] fusion(much, at), kind=kLoop, calls=inner
  sum = f32[1,8] add(one, row)
  ROOT there = f32[100,8] dynamic-update-slice(much, sum, at, at)
}

ENTRY main {
  a = f32[100,8] parameter(0)
  i = s32[] parameter(1)
  b = f32[1,8] parameter(2)
  c = f32[5000] parameter(3)
  ROOT d = f32[100,8] fusion(a, i, b, c), kind=kLoop, calls=outer
}
"""


def test_fusions_read_what_their_instructions_do():
    found = efforts(FUSED)["d"]
    # Both operands of the product are of one array: it counts twice.
    assert found == Effort((64, 4, 32, 0), 32, 0)


def test_fusions_with_products_and_many_results():
    program = """
inner {
  a = f32[8,32] parameter(0)
  b = f32[32,5] parameter(1)
  ROOT c = f32[8,5] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

outer {
  a = f32[8,32] parameter(0)
  b = f32[32,5] parameter(1)
  c = f32[8,5] fusion(a, b), kind=kOutput, calls=inner
  ROOT d = (f32[8,5], f32[8,32]) tuple(c, a)
}

ENTRY main {
  a = f32[8,32] parameter(0)
  b = f32[32,5] parameter(1)
  ROOT d = (f32[8,5], f32[8,32]) fusion(a, b), kind=kOutput, calls=outer
}
"""
    assert efforts(program)["d"] == Effort((1024, 640), 160 + 1024, 1280)
