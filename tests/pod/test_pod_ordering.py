"""Collectives of a program in the order in which they were traced: what is compiled of it."""

import pytest
import tokens

from torch_xla_cc._pod.pod_device import meetings, ordering, protos, stablehlo

xla = pytest.importorskip("torch_xla_cc._pod.pod_device.jaxlib_xla", reason="needs jaxlib").xla

_RANKS = 4
_SUM = """
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}
"""
_CALLED = """
inner {
  a = f32[8]{0} parameter(0)
  r = f32[8]{0} all-reduce(a), replica_groups={}, to_apply=add
  ROOT g = f32[32]{0} all-gather(r), dimensions={0}, replica_groups={{0,1,2,3}}
}

outer {
  a = f32[8]{0} parameter(0)
  g = f32[32]{0} call(a), to_apply=inner
  s = f32[8]{0} slice(g), slice={[8:16]}
  h = f32[32]{0} call(s), to_apply=inner
  ROOT t = (f32[32]{0}, f32[32]{0}) tuple(g, h)
}
"""
_MADE_AT = 'op_name="mine" source_file="t.py" source_line=3'
_ENTRY = """
ENTRY e {
  a = f32[8]{0} parameter(0)
  b = c64[8]{0} parameter(1)
  zero = f32[] constant(0)
  zeros = f32[8]{0} broadcast(zero), dimensions={}
  r = f32[8]{0} all-reduce(a), replica_groups={}, to_apply=add, metadata={MADE_AT}
  folds = f32[32]{0} all-gather(zeros), dimensions={0}, replica_groups=ALL
  p = f32[8]{0} collective-permute(a), source_target_pairs={{0,1},{1,2}}
  s = f32[2]{0} slice(a), slice={[0:2]}
  several = (f32[2]{0}, f32[2]{0}, f32[2]{0}, f32[2]{0}) all-to-all(s, s, s, s), replica_groups=ALL
  one = f32[2]{0} get-tuple-element(several), index=2
  rs = f32[2]{0} reduce-scatter(a), dimensions={0}, replica_groups=ALL, to_apply=add
  c = (f32[32]{0}, f32[32]{0}) call(r), to_apply=outer
  last = f32[32]{0} get-tuple-element(c), index=1
  e = f32[8]{0} erf(a)
  bb = c64[8]{0} add(b, b)
  ROOT o = (f32[8]{0}, c64[8]{0}, f32[32]{0}, f32[8]{0}, f32[2]{0}, f32[2]{0}, f32[32]{0},
      f32[8]{0})
      tuple(r, bb, folds, p, one, rs, last, e)
}
""".replace("ALL", "{{0,1,2,3}}").replace("MADE_AT", _MADE_AT)
_ORDER = (
    *("all-reduce", "all-gather", "collective-permute", "all-to-all"),
    *("all-reduce", "reduce-scatter"),  # the first so that all are there
    *("all-reduce", "all-gather", "all-reduce", "all-gather"),
)


def proto(text):
    return xla.hlo_module_from_text(text).as_serialized_hlo_module_proto()


def compiled(module, donors=()):
    client = xla.get_tfrt_cpu_client(asynchronous=True, num_devices=_RANKS)
    text = xla.mlir.xla_computation_to_mlir_module(xla.XlaComputation(module))
    options = xla.CompileOptions()
    options.num_replicas = _RANKS
    devices = xla.DeviceList(tuple(client.local_devices()))
    loaded = client.compile_and_load(stablehlo.with_donors(text, donors), devices, options)
    return loaded.hlo_modules()[0].to_string()


def in_order(text):
    """The kinds of collectives, as they are scheduled."""
    computations, entry = meetings._computations(text)
    return [match["op"] for match, _ in meetings._in_order(computations, entry)]


def test_each_has_its_place():
    header = f"HloModule m, replica_count={_RANKS}, buffer_donor={{ (1, {{}}) }}\n"
    module = proto(header + _SUM + _CALLED + _ENTRY)
    text = compiled(ordering.ordered(module), protos.donated_parameters(module))
    assert in_order(text) == list(_ORDER)
    assert not meetings.of_program(text, 0, _RANKS).is_impatient()
    assert meetings.of_program(compiled(module), 0, _RANKS).is_impatient()
    assert "input_output_alias={ {1}: (1, {}, may-alias) }" in text
    assert _MADE_AT in text


def test_each_waits_for_the_one_before():
    """A pod of four ranks on a busy machine began an all_to_all before another that was written
    first, whose operand was still being cut, and ended: sizes did not fit.
    """
    header = f"HloModule m, replica_count={_RANKS}\n"
    module = proto(header + _SUM + _CALLED + _ENTRY)
    text = compiled(ordering.ordered(module))
    assert tokens.collectives(text) == len(_ORDER) and not tokens.unordered(text)
    assert tokens.unordered(compiled(module))


def test_without_it_xla_folds_a_gather_of_a_constant():
    """And so the order is needed; where this fails it is needed no more."""
    header = f"HloModule m, replica_count={_RANKS}\n"
    assert "all-gather" not in in_order(compiled(proto(header + _SUM + _CALLED + _ENTRY)))[:5]


def test_constants_are_gathered():
    """Which XLA would move into the computation of the all_gather, and fold it there."""
    text = f"""HloModule m, replica_count={_RANKS}
ours {{
  x = f32[2]{{0}} parameter(0)
  t = s32[1]{{0}} parameter(1)
  g = f32[8]{{0}} all-gather(x), dimensions={{0}}, replica_groups={{{{0,1,2,3}}}}
  ROOT r = (f32[8]{{0}}, s32[1]{{0}}) tuple(g, t)
}}

ENTRY e {{
  t = s32[1]{{0}} parameter(0)
  one = f32[] constant(1)
  ones = f32[2]{{0}} broadcast(one), dimensions={{}}
  zero = f32[] constant(0)
  all = f32[8]{{0}} pad(ones, zero), padding=0_6
  yes = pred[] constant(true)
  both = pred[2]{{0}} broadcast(yes), dimensions={{}}
  no = pred[] constant(false)
  part = pred[8]{{0}} pad(both, no), padding=0_6
  zeros = f32[8]{{0}} broadcast(zero), dimensions={{}}
  buffer = f32[8]{{0}} select(part, all, zeros)
  c = f32[2]{{0}} slice(buffer), slice={{[0:2]}}
  r = (f32[8]{{0}}, s32[1]{{0}}) call(c, t), to_apply=ours
  ROOT g = f32[8]{{0}} get-tuple-element(r), index=0
}}
"""
    assert in_order(compiled(ordering.ordered(proto(text)))) == ["all-gather"]


def test_what_a_loop_asks():
    """Collectives in its condition, one of a constant; and a condition that is its state.

    What comes behind takes nothing of them but the token, which XLA would take out of a loop that
    does not change it.
    """
    text = f"""HloModule m, replica_count={_RANKS}
{_SUM}
addi {{
  x = s32[] parameter(0)
  y = s32[] parameter(1)
  ROOT z = s32[] add(x, y)
}}

body {{
  x = f32[8]{{0}} parameter(0)
  ROOT y = f32[8]{{0}} add(x, x)
}}

until {{
  x = f32[8]{{0}} parameter(0)
  c = f32[2]{{0}} constant({{1, 1}})
  g = f32[8]{{0}} all-gather(c), dimensions={{0}}, replica_groups={{{{0,1,2,3}}}}
  r = f32[8]{{0}} all-reduce(x), replica_groups={{}}, to_apply=add
  d = f32[8]{{0}} subtract(g, r)
  s = f32[1]{{0}} slice(d), slice={{[0:1]}}
  v = f32[] reshape(s)
  zero = f32[] constant(0)
  ROOT p = pred[] compare(v, zero), direction=GT
}}

still {{
  ROOT p = pred[] parameter(0)
}}

next {{
  p = pred[] parameter(0)
  one = s32[] constant(1)
  y = s32[] convert(p)
  r = s32[] all-reduce(y), replica_groups={{}}, to_apply=addi
  ROOT q = pred[] compare(r, one), direction=GT
}}

ENTRY e {{
  x = f32[8]{{0}} parameter(0)
  q = pred[] parameter(1)
  w = f32[8]{{0}} while(x), condition=until, body=body
  v = pred[] while(q), condition=still, body=next
  y = f32[8]{{0}} parameter(2)
  z = f32[8]{{0}} all-reduce(y), replica_groups={{}}, to_apply=add
  ROOT r = (f32[8]{{0}}, pred[], f32[8]{{0}}) tuple(w, v, z)
}}
"""
    found = compiled(ordering.ordered(proto(text)))
    assert in_order(found) == ["all-gather", "all-reduce", "all-reduce", "all-reduce"]
    assert not tokens.unordered(found)


@pytest.mark.parametrize("turned", [False, True])
def test_loops_and_branches(turned):
    """And what is beside them, in the order in which it is written."""
    text = f"""HloModule m, replica_count={_RANKS}
{_SUM}
step {{
  x = f32[8]{{0}} parameter(0)
  ROOT r = f32[8]{{0}} all-reduce(x), replica_groups={{}}, to_apply=add
}}

body {{
  s = (s32[], f32[8]{{0}}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8]{{0}} get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[8]{{0}} call(x), to_apply=step
  ROOT t = (s32[], f32[8]{{0}}) tuple(j, y)
}}

until {{
  s = (s32[], f32[8]{{0}}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}}

yes {{
  s = f32[8]{{0}} parameter(0)
  ROOT p = f32[8]{{0}} collective-permute(s), source_target_pairs={{{{0,1}}}}
}}

no {{
  s = (f32[8]{{0}}, f32[8]{{0}}) parameter(0)
  ROOT x = f32[8]{{0}} get-tuple-element(s), index=1
}}

ENTRY e {{
  x = f32[8]{{0}} parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[8]{{0}}) tuple(zero, x)
  FIRST
  w = (s32[], f32[8]{{0}}) while(s), condition=until, body=body
  y = f32[8]{{0}} get-tuple-element(w), index=1
  p = pred[] parameter(1)
  xx = (f32[8]{{0}}, f32[8]{{0}}) tuple(x, x)
  c = f32[8]{{0}} conditional(p, x, xx), true_computation=yes, false_computation=no
  LAST
  ROOT RESULT
}}
"""
    beside = "beside = f32[32]{0} all-gather(x), dimensions={0}, replica_groups={{0,1,2,3}}"
    text = text.replace("LAST" if turned else "FIRST", beside)
    text = text.replace("FIRST" if turned else "LAST", "")
    a, b = ("y, c", "beside") if turned else ("beside", "y, c")  # XLA writes from results backwards
    shapes = {"y, c": "f32[8]{0}, f32[8]{0}", "beside": "f32[32]{0}"}
    text = text.replace("RESULT", f"r = ({shapes[a]}, {shapes[b]}) tuple({a}, {b})")
    found = in_order(compiled(ordering.ordered(proto(text))))
    wanted = ["all-reduce", "collective-permute"]
    assert found == ([*wanted, "all-gather"] if turned else ["all-gather", *wanted])


def test_without_collectives_nothing_changes():
    text = "HloModule m\nENTRY e {\n  x = f32[8]{0} parameter(0)\n  ROOT y = f32[8]{0} add(x, x)\n}"
    module = proto(text)
    assert ordering.ordered(module) == module


def test_donors_that_are_sharded():
    text = """
func.func @main(%arg0: tensor<8xf32> {mhlo.sharding = "{devices=[2]<=[2]}"} loc("a"), \\
%arg1: tensor<2xcomplex<f32>>, %arg2: tensor<i1>) -> (tensor<8xf32>) {
  %arg0: tensor<8xf32>
""".replace("\\\n", "")
    marked = stablehlo.with_donors(text, [0, 1])
    assert marked == text.replace(
        "tensor<8xf32> {mhlo", "tensor<8xf32> {jax.buffer_donor = true, mhlo"
    ).replace("complex<f32>>,", "complex<f32>> {jax.buffer_donor = true},")


def test_branches_are_compared():
    branch = "  ROOT r{0} = f32[8]{{0}} all-reduce(x{0}), replica_groups={{}}, to_apply=add\n}}\n"
    text = f"HloModule m, replica_count={_RANKS}\n{_SUM}" + "".join(
        f"b{i} {{\n  x{i} = f32[8]{{0}} parameter(0)\n{branch.format(i)}" for i in range(2)
    )
    text += (
        "ENTRY e {\n  p = pred[] parameter(0)\n  x = f32[8]{0} parameter(1)\n  ROOT c = f32[8]{0} "
        "conditional(p, x, x), true_computation=b0, false_computation=b1\n}\n"
    )
    assert in_order(compiled(ordering.ordered(proto(text)))) == ["all-reduce"] * 2
