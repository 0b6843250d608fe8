"""What instructions read, write and multiply."""

import time

import effort as effort_of_tests
import pytest
import torch
import torch_xla
from hypothesis import strategies as st
from torch_xla import _XLAC

from torch_xla_cc._hlo import proto, protobuf, text
from torch_xla_cc._hlo.effort import Effort, effort, efforts
from torch_xla_cc._hlo.products import Window


def of_entry(program):
    """Of the instructions of the entry, by name."""
    known = {}
    for computation in text.Reader(["HloModule m", *program.splitlines()]).computations():
        instructions = computation.instructions
        if computation.is_entry:
            return {one.name: effort(one, known) for one in instructions}
        known[computation.name] = efforts(instructions, computation.root, known)
    raise AssertionError("no entry")


def entry(*lines):
    return "\n".join(["ENTRY main {", *(f"  {line}" for line in lines), "}"])


def products(left, right, gives, opcode, attributes):
    program = entry(
        f"a = {left} parameter(0)",
        f"b = {right} parameter(1)",
        f"ROOT c = {gives} {opcode}(a, b), {attributes}",
    )
    return of_entry(program)["c"].products


@pytest.mark.parametrize(
    ("left", "right", "gives", "contracts", "expected"),
    [
        ("bf16[8,32]", "bf16[32,5]", "f32[8,5]", "{1}", 8 * 32 * 5),
        ("f32[32]", "f32[32]", "f32[]", "{0}", 32),
        ("f32[9,7]", "f32[9,7]", "f32[9]", "{1}", 9 * 7),  # pairs of vectors
        ("f32[7,8,32]", "f32[7,32,5]", "f32[7,8,5]", "{2}", 5 * 7 * 8 * 32),
        ("f32[2,64,64]", "f32[2,64,64]", "f32[2,64,64]", "{2}", 2 * 64**3),
        ("f32[6,3,8]", "f32[6,8,3]", "f32[]", "{0,1,2}", 6 * 3 * 8),
        ("f32[0,8]", "f32[8,5]", "f32[0,5]", "{1}", 0),
    ],
)
def test_products_of_dots(left, right, gives, contracts, expected):
    assert products(left, right, gives, "dot", f"lhs_contracting_dims={contracts}") == expected


@pytest.mark.parametrize(
    ("left", "right", "gives", "attributes", "expected"),
    [
        ("f32[8,32]", "f32[32,5]", "f32[8,5]", "dim_labels=bf_io->bf", 8 * 32 * 5),
        # A 3x3 kernel does not reach beyond the edges of 28x28.
        (
            "bf16[2,256,28,28]",
            "bf16[256,256,3,3]",
            "bf16[2,256,28,28]",
            "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01",
            2 * 256 * 256 * (3 * 28 - 2) ** 2,
        ),
        # Of a group of channels, a kernel of its own.
        (
            "f32[2,10,64]",
            "f32[4,1,64]",
            "f32[2,7,64]",
            "window={size=4}, dim_labels=b0f_0io->b0f, feature_group_count=64",
            2 * 64 * 7 * 4,
        ),
        # How a TPU's compiler writes a batch of matmuls.
        (
            "bf16[8,20,30]",
            "bf16[8,30,40]",
            "bf16[8,20,40]",
            "window={size=8 stride=7 lhs_dilate=8}, dim_labels=0bf_0io->0bf",
            8 * 20 * 30 * 40,
        ),
        (
            "bf16[4096,64,1]",
            "bf16[4096,64,64]",
            "bf16[4096,1,64]",
            "window={size=4096 stride=4095 lhs_dilate=4096}, dim_labels=0fb_0io->0bf",
            4096 * 64 * 64,
        ),
    ],
)
def test_products_of_convolutions(left, right, gives, attributes, expected):
    assert products(left, right, gives, "convolution", attributes) == expected


@effort_of_tests.for_each(
    200,
    st.builds(
        Window,
        st.integers(1, 9),
        st.integers(1, 6),
        st.integers(-4, 6),
        st.integers(1, 5),
        st.integers(1, 6),
    ),
    st.integers(0, 12),
    st.integers(0, 12),
)
def test_positions_of_a_window(window, given, taken):
    places = [
        out * window.stride + at * window.dilation - window.low
        for out in range(given)
        for at in range(window.size)
    ]
    last = (taken - 1) * window.base_dilation
    inside = [x for x in places if 0 <= x <= last and x % window.base_dilation == 0]
    assert window.positions(given, taken) == len(inside)


def test_products_of_a_gpus_calls():
    program = entry(
        "a = f32[8,32] parameter(0)",
        "b = f32[32,5] parameter(1)",
        'c = (f32[8,5], s8[100]) custom-call(a, b), custom_call_target="__cublas$gemm", '
        'backend_config={"gemm_backend_config":{"dot_dimension_numbers":'
        '{"lhs_contracting_dimensions":["1"]}}}',
        'ROOT d = f32[8,5] custom-call(a, b), custom_call_target="mine"',
    )
    found = of_entry(program)
    assert found["c"] == Effort((1024, 640), 160, 1280)
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
    found = of_entry(program)
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
    found = of_entry(FUSED)["d"]
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
    assert of_entry(program)["d"] == Effort((1024, 640), 160 + 1024, 1280)


def fused(*lines, takes="f32[100,8]", gives="f32[100,8]"):
    """Of a fusion of these."""
    program = [
        "inner {",
        f"  p = {takes} parameter(0)",
        "  row = f32[1,8] parameter(1)",
        "  i = s32[] parameter(2)",
        *(f"  {line}" for line in lines),
        "}",
        "ENTRY main {",
        f"  a = {takes} parameter(0)",
        "  b = f32[1,8] parameter(1)",
        "  i = s32[] parameter(2)",
        f"  ROOT c = {gives} fusion(a, b, i), kind=kLoop, calls=inner",
        "}",
    ]
    return of_entry("\n".join(program))["c"]


UPDATE = "dynamic-update-slice(p, row, i, i)"


def test_what_is_written_into_in_place():
    of_row = Effort((0, 32, 4), 32, 0)
    assert fused(f"ROOT u = f32[100,8] {UPDATE}") == of_row
    assert fused(f"u = f32[100,8] {UPDATE}", "ROOT v = f32[100,8] bitcast(u)") == of_row
    twice = fused(
        f"u = f32[100,8] {UPDATE}",
        "ROOT v = f32[100,8] dynamic-update-slice(u, row, i, i)",
    )
    assert twice.reads == (0, 32, 4) and twice.writes == 64


def test_what_is_written_into_and_used_is_all_read():
    found = fused(f"u = f32[100,8] {UPDATE}", "ROOT v = f32[100,8] negate(u)")
    assert found == Effort((3200, 32, 4), 3200, 0)


def test_what_is_written_into_what_was_computed():
    found = fused(
        "half = f32[100,8] negate(p)",
        "ROOT u = f32[100,8] dynamic-update-slice(half, row, i, i)",
    )
    assert found == Effort((3200, 32, 4), 3200, 0)


def test_what_looks_at_other_elements_reads_them_all():
    for opcode in ("sort(p)", "reduce-window(p)"):
        found = fused(
            f"x = f32[100,8] {opcode}",
            "ROOT y = f32[1,8] slice(x), slice={[0:1], [0:8]}",
            gives="f32[1,8]",
        )
        assert found == Effort((3200, 0, 0), 32, 0)


def test_scatters_of_several():
    a, b = "a = f32[100,8] parameter(0)", "b = bf16[100,8] parameter(1)"
    program = entry(
        a,
        b,
        "i = s32[1] parameter(2)",
        "u = f32[1,8] parameter(3)",
        "v = bf16[1,8] parameter(4)",
        "ROOT c = (f32[100,8], bf16[100,8]) scatter(a, b, i, u, v)",
    )
    assert of_entry(program)["c"] == Effort((0, 0, 4, 32, 16), 48, 0)


STEPS = """
inner {
  p = (f32[100,8], f32[9999999]) parameter(0)
  x = f32[100,8] get-tuple-element(p), index=0
  y = f32[9999999] get-tuple-element(p), index=1
  half = f32[100,8] negate(x)
  more = f32[100,8] add(half, x)
  z = f32[100,8] dot(more, x), lhs_contracting_dims={1}
  ROOT t = (f32[100,8], f32[9999999]) tuple(z, y)
}

other {
  p = (f32[100,8], f32[9999999]) parameter(0)
  ROOT t = (f32[100,8], f32[9999999]) bitcast(p)
}

ENTRY main {
  a = (f32[100,8], f32[9999999]) parameter(0)
  i = s32[] parameter(1)
  b = (f32[100,8], f32[9999999]) call(a), to_apply=inner
  c = (f32[100,8], f32[9999999]) while(a), condition=other, body=inner
  ROOT d = (f32[100,8], f32[9999999]) conditional(i, a, a), branch_computations={inner, other}
}
"""


def test_what_runs_step_by_step():
    found = of_entry(STEPS)
    steps = 3200 * (2 + 3 + 3)
    assert found["b"] == found["c"] == Effort((0,), steps, 100 * 8 * 8)
    assert found["d"] == Effort((0, 0, 0), 0, 0)  # of the branch that does least


@pytest.mark.parametrize(
    "lines",
    [
        ["ROOT u = f32[8] dynamic-update-slice()"],
        ["ROOT u = f32[8] scatter()"],
        ["ROOT u = f32[8] bitcast()"],
        ["ROOT u = f32[8] slice()"],
        ["ROOT u = f32[8] convolution(), dim_labels=bf_io->bf"],
        ["ROOT u = f32[8] parameter(999999999)"],
        ["x = f32[999999999999999999,999999999999999999] negate(p)", "ROOT u = f32[8] slice(x)"],
    ],
)
def test_what_is_malformed(lines):
    fused(*lines, takes="f32[8]", gives="f32[8]")


def test_time_is_linear():
    """A loop that carries many arrays."""
    many = 4000
    types = "(" + ", ".join(["f32[128,128]"] * many) + ")"
    parts = [f"  g{i} = f32[128,128] get-tuple-element(p), index={i}" for i in range(many)]
    names = ", ".join(f"g{i}" for i in range(many))
    lines = ["body {", f"  p = {types} parameter(0)", *parts, f"  ROOT t = {types} tuple({names})"]
    begun = time.process_time()
    of_entry("\n".join([*lines, "}", *entry("ROOT a = f32[] parameter(0)").splitlines()]))
    assert time.process_time() - begun < 2  # 0.1, as measured


def test_text_and_proto_are_alike():
    def normal(*shape):
        return torch.zeros(*shape, device=torch_xla.device())

    made = torch.conv2d(normal(2, 4, 9, 9), normal(6, 2, 3, 3), padding=1, stride=2, groups=2)
    upwards = torch.conv_transpose2d(made, normal(6, 5, 3, 3), stride=2)
    results = [made, upwards, torch.bmm(normal(3, 4, 5), normal(3, 5, 7))]
    module = protobuf.HloModuleProto.FromString(_XLAC._get_xla_tensors_hlo_proto(results))
    lines = _XLAC._get_xla_tensors_hlo(results).splitlines()
    of_proto, of_text = (
        [one.products for computation in some for one in computation.instructions if one.products]
        for some in (proto.computations(module), text.Reader(lines).computations())
    )
    assert of_proto == of_text == [4056, 13500, 420]
