"""Advice: each kind with its lines and bytes, what is close to it, and programs that are well."""

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import effort
import pytest
import torch
import torch_xla
from hypothesis import strategies as st
from test_hlo_fuzz import EDIT, edited
from test_report_html import Page

import torch_xla_cc
from torch_xla_cc import xla_model as xm
from torch_xla_cc._hlo import flow
from torch_xla_cc._hlo.text import Reader
from torch_xla_cc._inspect import dump, html, report
from torch_xla_cc._inspect.advice import Advice, of_programs

TPU, GPU = "tpu:v5e:2x4", "gpu:h100x8"
WORLDS = {TPU: 8, GPU: 8, "cpu": 4}
BYTES = 256 * 128 * 4  # of a wide operand
HALVES = {TPU: [[0, 1, 2, 3], [4, 5, 6, 7]], "cpu": [[0, 1], [2, 3]]}
GPU_IS_THERE = importlib.util.find_spec("jax_plugins") is not None


def tensor(*shape, dtype=torch.float32):
    return torch.ones(*shape).to(dtype).to("xla")


@pytest.fixture(scope="module")
def given():
    made = SimpleNamespace(
        wide=tensor(256, 128),
        flat=tensor(512, 4, 64),
        vector=tensor(8 * 16385),
        small=tensor(64, 128),
        bf16=tensor(64, 128, dtype=torch.bfloat16),
        row=tensor(1, 1 << 15),
        s64=tensor(256, 128, dtype=torch.int64),
        s32=tensor(256, 128, dtype=torch.int32),
        f8=tensor(256, 512, dtype=torch.float8_e5m2),
    )
    torch_xla.sync()
    return made


def inspected(step, given, target):
    made = torch_xla_cc.inspect(step, *given, target=target, world_size=WORLDS[target])
    assert not made.failure
    return made


def both(whole):
    return whole[:, :8] + whole[:, 24:32]


# name, target, kind, saved bytes, saved starts, the step: its collectives are on one line.
FOUND = [
    # An all-reduce brings 2 (n - 1) B / n to a rank, a reduce-scatter half of that.
    ("rank 0", TPU, "reduce-scatter", 7 * BYTES // 8, 0,
     lambda g: xm.all_reduce("sum", g.wide)[:32] + 1),
    ("rank 1", "cpu", "reduce-scatter", 3 * BYTES // 4, 0,
     lambda g: xm.all_reduce("max", g.wide)[64:128] * 2),
    ("columns", "cpu", "reduce-scatter", 3 * BYTES // 4, 0,
     lambda g: xm.all_reduce("sum", g.wide)[:, 96:]),
    ("halves", TPU, "reduce-scatter", 3 * BYTES // 4, 0,
     lambda g: xm.all_reduce("sum", g.wide, groups=HALVES[TPU])[64:128]),
    ("three dimensions", TPU, "reduce-scatter", 7 * (512 << 10) // 8, 0,
     lambda g: xm.all_reduce("sum", g.flat)[:64] + 1),
    ("a vector", TPU, "reduce-scatter", 7 * (512 << 10) // 8, 0,
     lambda g: xm.all_reduce("sum", g.flat.view(-1))[: 16 << 10] + 1),
    # An all-gather brings (n - 1) B, of a quarter of the columns a quarter.
    ("columns", TPU, "gather-less", 7 * BYTES * 3 // 4, 0,
     lambda g: xm.all_gather(g.wide)[:, :32] + 1),
    ("columns", "cpu", "gather-less", 3 * BYTES * 3 // 4, 0,
     lambda g: xm.all_gather(g.wide)[:, 32:64]),
    ("two slices", TPU, "gather-less", 7 * BYTES * 3 // 4, 0,
     lambda g: both(xm.all_gather(g.wide))),
    # A broadcast of 512 bytes is an all-reduce on these.
    ("a row", TPU, "gather-less", 7 * BYTES - 2 * 7 * 512 // 8, 0,
     lambda g: xm.all_gather(g.wide)[3] + 1),
    ("a row", "cpu", "gather-less", 3 * BYTES - 2 * 3 * 512 // 4, 0,
     lambda g: xm.all_gather(g.wide)[700]),
    ("all-gather", TPU, "repeated", 7 * BYTES, 1,
     lambda g: (xm.all_gather(g.wide), xm.all_gather(g.wide) + 1)),
    ("all-gather", "cpu", "repeated", 3 * BYTES, 1,
     lambda g: (xm.all_gather(g.wide), xm.all_gather(g.wide) + 1)),
    ("all-reduce", TPU, "repeated", 2 * 2 * 7 * BYTES // 8, 2,
     lambda g: [xm.all_reduce("sum", g.wide) * i for i in range(3)]),
    ("small ones too", TPU, "repeated", 7 * BYTES // 4, 1,
     lambda g: [xm.all_gather(g.small) * i for i in range(2)]),
    ("all-reduce", TPU, "combine", 0, 2,
     lambda g: [xm.all_reduce("sum", g.small + i) for i in range(3)]),
    ("all-gather", TPU, "combine", 0, 1,
     lambda g: [xm.all_gather(g.small + i) for i in range(2)]),
    # Each of 128 KiB is read and written once.
    ("columns", "cpu", "transpose", 2 * BYTES, 0,
     lambda g: xm.all_gather(g.wide, dim=1) + 1),
    ("columns", GPU, "transpose", 2 * BYTES, 0,
     lambda g: xm.all_gather(g.wide, dim=1) + 1),
    # Of 512 KiB on each rank, before it and after it.
    ("no whole tiles", TPU, "transpose", 2 * (1 + 8) * (512 << 10), 0,
     lambda g: xm.all_gather(g.flat, dim=1)),
    # By a reduce-scatter and an all-gather of 8 bytes each, or by an all-reduce of 4.
    ("s64", TPU, "fallback", 2 * 7 * BYTES * 2 // 8 - 2 * 7 * BYTES // 8, 0,
     lambda g: xm.all_reduce("max", g.s64)),
    # In f32, or in bf16.
    ("f8", GPU, "fallback", 2 * 7 * (4 - 2) * BYTES // 8, 0,
     lambda g: xm.all_reduce("sum", g.f8)),
    # By an all-reduce of all that is gathered, or by the all-gather.
    ("partial", "cpu", "fallback", BYTES, 0,
     lambda g: xm.all_gather(g.wide, groups=[[0, 1]])),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::torch_xla_cc.FallbackWarning")
@pytest.mark.parametrize(
    ("name", "target", "kind", "saved", "starts", "step"),
    [pytest.param(*case, id=" ".join((case[2], case[0], case[1]))) for case in FOUND],
)
def test_it_is_found(given, name, target, kind, saved, starts, step):
    if target == GPU and not GPU_IS_THERE:
        pytest.skip("needs jax_cuda12_pjrt")
    (found,) = inspected(step, (given,), target).advice
    assert (found.kind, found.saved_bytes, found.saved_starts) == (kind, saved, starts)
    assert found.saved_on == ("memory" if kind == "transpose" else "wire")
    of_each = starts + 1 if kind in ("repeated", "combine") else 1
    assert found.lines == ((__file__, step.__code__.co_firstlineno),) * of_each


def partly(whole):
    return whole[:32] * 2, whole.sum()


def broadcast(x):
    xm.collective_broadcast([x], 0)
    return x


# All of these are well, or no better on that target, or save less than it is worth.
WELL = [
    ("all is used as well", TPU, lambda g: partly(xm.all_reduce("sum", g.wide))),
    ("the result as well", TPU,
     lambda g: (lambda y: (y, y[:32] * 2))(xm.all_reduce("sum", g.wide))),
    ("no block", TPU, lambda g: xm.all_reduce("sum", g.wide)[16:48] + 1),
    ("a larger block", TPU, lambda g: xm.all_reduce("sum", g.wide)[:64] + 1),
    ("steps", TPU, lambda g: xm.all_reduce("sum", g.wide)[::8] + 1),
    ("of one rank", TPU,
     lambda g: xm.all_reduce("sum", g.wide, groups=[[i] for i in range(8)])[:32]),
    ("small", TPU, lambda g: xm.all_reduce("sum", g.small)[:8] + 1),
    # This compiler would make an all-reduce of the reduce-scatter.
    ("no reduce-scatter", TPU, lambda g: xm.all_reduce("sum", g.vector)[:16385] + 1),
    ("a reduce-scatter", TPU, lambda g: xm.reduce_scatter("sum", g.wide, 1.0, 0, 8) + 1),
    ("all parts", TPU, lambda g: (lambda y: y[:1024] + y[1024:])(xm.all_gather(g.wide))),
    ("all columns", TPU, lambda g: (lambda y: y[:, :32] @ y[:, 96:].t())(xm.all_gather(g.wide))),
    ("every other row", TPU, lambda g: xm.all_gather(g.wide)[::2] + 1),
    ("sum and slice", TPU, lambda g: (lambda y: (y[:, :8] * 2, y.sum()))(xm.all_gather(g.wide))),
    ("a small gather", "cpu", lambda g: xm.all_gather(g.small)[:, :96] + 1),
    ("other values", TPU, lambda g: (xm.all_gather(g.wide), xm.all_gather(g.wide + 1))),
    ("one of the other", TPU, lambda g: xm.all_reduce("sum", xm.all_reduce("sum", g.wide))),
    ("other dimensions", TPU, lambda g: (xm.all_gather(g.wide), xm.all_gather(g.wide, dim=1))),
    ("other reductions", TPU,
     lambda g: (xm.all_reduce("sum", g.wide), xm.all_reduce("max", g.wide))),
    ("other groups", TPU,
     lambda g: (xm.all_gather(g.wide), xm.all_gather(g.wide, groups=HALVES[TPU]))),
    ("what the compiler takes together", TPU,
     lambda g: [xm.collective_permute(g.wide, [[0, 1]]) * i for i in range(2)]),
    ("other pairs", TPU, lambda g: [xm.collective_permute(g.wide, [[0, i]]) for i in (1, 2)]),
    ("one after the other", TPU, lambda g: xm.all_reduce("sum", xm.all_reduce("sum", g.small) * 2)),
    ("a list", TPU, lambda g: xm.all_reduce("sum", [g.small + 1, g.small * 2])),
    ("large", TPU, lambda g: (xm.all_reduce("sum", g.wide + 1), xm.all_reduce("sum", g.wide * 2))),
    ("small, other types", TPU,
     lambda g: (xm.all_reduce("sum", g.small), xm.all_reduce("sum", g.bf16))),
    ("small, other reductions", TPU,
     lambda g: (xm.all_reduce("sum", g.small + 1), xm.all_reduce("max", g.small))),
    ("small, other groups", TPU,
     lambda g: (xm.all_gather(g.small + 1), xm.all_gather(g.small, groups=HALVES[TPU]))),
    ("no lists there", TPU,
     lambda g: [xm.reduce_scatter("sum", g.small + i, 1.0, 0, 8) for i in range(2)]),
    ("no lists there", "cpu", lambda g: [xm.all_reduce("sum", g.small + i) for i in range(2)]),
    ("gathers inner dimensions", TPU, lambda g: xm.all_gather(g.wide, dim=1) + 1),
    ("turned before", "cpu", lambda g: xm.all_gather(g.wide.t(), dim=0) + 1),
    ("turned after", "cpu", lambda g: xm.all_gather(g.wide, dim=0).t() + 1),
    ("outermost but for ones", "cpu", lambda g: xm.all_gather(g.row, dim=1) + 1),
    ("no other way", "cpu", lambda g: xm.all_to_all(g.wide, 0, 0, 4)),
    ("no other way", TPU, lambda g: broadcast(g.wide + 1)),
    ("groups that leave one", "cpu", lambda g: xm.all_gather(g.wide, groups=[[0, 1, 2]])),
    ("groups that are completed", TPU, lambda g: xm.all_gather(g.wide, groups=[[0, 1]])),
    ("native", TPU, lambda g: xm.all_reduce("max", g.s32)),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::torch_xla_cc.FallbackWarning")
@pytest.mark.parametrize(
    ("name", "target", "step"), [pytest.param(*case, id=" ".join(case[:2])) for case in WELL]
)
def test_there_is_none(given, name, target, step):
    made = inspected(step, (given,), target)
    assert made.rows and made.advice == ()


@pytest.fixture(scope="module")
def example():
    """examples/tensor_parallel.py."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    try:
        import tensor_parallel

        yield tensor_parallel
    finally:
        sys.path.pop(0)


@pytest.mark.parametrize("target", [TPU, "cpu"])
def test_the_example_is_well(example, target):
    ranks = WORLDS[target]
    block = example.Block(example.Sizes(), 0, ranks).to("xla")
    optimizer = torch.optim.SGD(block.parameters(), lr=0.05)
    sizes = example.Sizes()
    inputs, wanted = (tensor(sizes.sequence // ranks, sizes.batch, sizes.features) for _ in "ab")
    torch_xla.sync()

    def step():
        optimizer.zero_grad()
        loss = (block(inputs) - wanted).pow(2).sum()
        loss.backward()
        block.sum_replicated_gradients()
        optimizer.step()
        return loss.detach()

    def step_of_the_demo():
        return xm.all_reduce(xm.REDUCE_SUM, step())

    assert inspected(step, (), target).advice == ()
    found = inspected(step_of_the_demo, (), target).advice
    # On the CPU, which the demo runs on, one instruction takes one operand. On a TPU the loss,
    # which the demo sums to print it, could go with the gradients of the norms.
    assert [(one.kind, one.saved_starts) for one in found] == (
        [] if target == "cpu" else [("combine", 1)]
    )


MODULE = """HloModule step, replica_count=4

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%gathers (p: f32[256,128]) -> f32[1024,128] {
  %p = f32[256,128]{1,0} parameter(0)
  ROOT %g = f32[1024,128]{1,0} all-gather(%p), replica_groups={}, dimensions={0}, AT9
}

ENTRY %main (x: f32[256,128]) -> f32[1024,128] {
  %x = f32[256,128]{1,0} parameter(0)
"""
CALL = "  %c.{0} = f32[1024,128]{{1,0}} call(%x), to_apply=%gathers\n"
REDUCE = (
    "  %r = f32[256,128]{1,0} all-reduce(%x), replica_groups={}, to_apply=%add, AT3\n"
    "  %i = u32[] replica-id()\n  %k = u32[] constant(64)\n  %o = u32[] multiply(%i, %k)\n"
    "  %z = u32[] constant(0)\n"
)
CUT = "  ROOT %s = f32[64,128]{1,0} dynamic-slice(%r, %o, %z), dynamic_slice_sizes={64,128}\n"


def module(body):
    text = MODULE + body + "}\n"
    for line in (3, 9):
        metadata = f'metadata={{op_name="step" source_file="train.py" source_line={line}}}'
        text = text.replace(f"AT{line}", metadata)
    return text


def computations(body):
    return tuple(Reader(module(body).splitlines()).computations())


TWICE = CALL.format(1) + CALL.format(2) + "  ROOT %s = f32[1024,128] add(%c.1, %c.2)\n"
ONCE = CALL.format(1) + "  ROOT %s = f32[1024,128] add(%c.1, %c.1)\n"


def test_what_the_compiler_has_mended():
    twice, once = computations(TWICE), computations(ONCE)
    (found,) = of_programs(twice, twice, 4)
    assert found == dataclasses.replace(
        found, kind="repeated", saved_bytes=3 * BYTES, lines=(("train.py", 9),) * 2
    )
    assert of_programs(twice, once, 4) == ()
    assert of_programs(once, once, 4) == ()


def test_what_the_compiler_has_combined():
    alone = computations(
        "  %y = f32[] parameter(1)\n  %z = f32[] parameter(2)\n"
        "  %r = f32[] all-reduce(%y), replica_groups={}, to_apply=%add, AT3\n"
        "  %s = f32[] all-reduce(%z), replica_groups={}, to_apply=%add, AT3\n"
        "  ROOT %t = f32[] add(%r, %s)\n"
    )
    together = computations(
        "  %y = f32[] parameter(1)\n  %z = f32[] parameter(2)\n"
        "  %r = (f32[], f32[]) all-reduce(%y, %z), replica_groups={}, to_apply=%add, AT3\n"
        "  %s = f32[] get-tuple-element(%r), index=0\n"
        "  ROOT %t = f32[] get-tuple-element(%r), index=1\n"
    )
    assert [one.kind for one in of_programs(alone, alone, 8, TPU)] == ["combine"]
    assert of_programs(alone, together, 8, TPU) == ()


def test_a_block_by_rank():
    reduced = computations(REDUCE + CUT)
    (found,) = of_programs(reduced, reduced, 4, "cpu")
    assert (found.kind, found.saved_bytes) == ("reduce-scatter", 3 * BYTES // 4)
    assert found.lines == (("train.py", 3),)
    assert "the block of its rank" in found.text and "if all take" not in found.text
    # An offset that does not come from the rank may be anything.
    other = computations(REDUCE + CUT.replace("%o, %z", "%k, %z"))
    assert of_programs(other, other, 4, "cpu") == ()


def test_dumps(tmp_path, monkeypatch):
    for side in ("before", "cpu_after"):
        (tmp_path / f"module_0001.step.{side}_optimizations.txt").write_text(module(TWICE))
    (made,) = report.of_path(str(tmp_path))
    assert [(one.kind, one.saved_bytes) for one in made.advice] == [("repeated", 3 * BYTES)]
    monkeypatch.setattr(dump, "LARGEST_WHOLE", 10)
    (made,) = report.of_path(str(tmp_path))
    assert len(made.rows) == 1 and made.advice == ()
    monkeypatch.undo()
    # What a reduce-scatter would become is not known of a dump.
    for path in tmp_path.iterdir():
        path.write_text(module(REDUCE + CUT))
    (made,) = report.of_path(str(tmp_path))
    assert len(made.rows) == 2 and made.advice == ()
    next(tmp_path.glob("*before*")).unlink()
    assert report.of_path(str(tmp_path))[0].advice == ()


def test_programs_that_are_larger_than_they_look(monkeypatch):
    monkeypatch.setattr(flow, "_MOST_STEPS", 10_000)
    # Each computation calls the one before it twice.
    text = "HloModule m\n\nf0 (p: f32[]) -> f32[] {\n  ROOT p = f32[] parameter(0)\n}\n"
    for i in range(1, 60):
        text += f"\nf{i} (p: f32[]) -> f32[] {{\n  p = f32[] parameter(0)\n"
        text += f"  a = f32[] call(p), to_apply=f{i - 1}\n"
        text += f"  ROOT b = f32[] call(a), to_apply=f{i - 1}\n}}\n"
    made = tuple(Reader(text.splitlines()).computations())
    with pytest.raises(flow.TooLargeError):
        flow.values(made)
    assert of_programs(made, made, 4) == ()


EDITED = module(
    TWICE.replace("ROOT %s", "%t")
    + REDUCE.replace("%i", "%n")
    + CUT.replace("%o, %z", "%z, %z")
    + "  %u = f32[9,128]{1,0} slice(%c.1), slice={[0:9], [0:128]}\n"
)


@effort.for_each(100, st.lists(EDIT, min_size=1, max_size=3))
def test_any_program(edits):
    text = edited(EDITED, edits)
    try:
        made = tuple(Reader(text.splitlines()).computations())
    except ValueError:
        return
    assert isinstance(of_programs(made, made, 4), tuple)


def test_values_through_calls_and_tuples():
    text = """HloModule m

f (p: f32[2], q: f32[4]) -> (f32[4], f32[2]) {
  p = f32[2] parameter(0)
  q = f32[4] parameter(1)
  r = f32[2] negate(p)
  ROOT t = (f32[4], f32[2]) tuple(q, r)
}

ENTRY main (x: f32[2], y: f32[4]) -> f32[4] {
  x = f32[2] parameter(0)
  y = f32[4] parameter(1)
  c = (f32[4], f32[2]) call(x, y), to_apply=f
  e = f32[4] get-tuple-element(c), index=0
  s = f32[1] slice(x), slice={[1:2]}
  ROOT z = f32[4] negate(e)
}
"""
    made = {
        one.instruction.name: one
        for one in flow.values(tuple(Reader(text.splitlines()).computations()))
    }
    assert list(made) == ["x", "y", "r", "s", "z"]
    assert made["z"].operands == (made["y"],) and made["r"].operands == (made["x"],)
    assert made["x"].users == [made["r"], made["s"]]
    assert made["s"].instruction.cut == ((1, 2, 1),)
    assert [name for name, one in made.items() if one.is_result] == ["z"]


def test_how_it_is_shown():
    one = Advice("<kind>", "Use [own] <script> & more.", (("/x/<y>.py", 3),) * 2, 5000, "memory")
    made = report.Report("step", "cpu", 4, (), advice=(one,))
    says = "Use [own] <script> & more. Saves 5,000 bytes read and written in memory."
    assert says in made.to_text() and "<y>.py:3" in made.to_text()
    (found,) = json.loads(made.to_json())["advice"]
    assert found["saved_bytes"] == 5000 and found["lines"] == [["/x/<y>.py", 3]] * 2
    page = Page(html.page([made]))
    assert not page.open and not page.of("script")
    assert says in page.text and len(page.of("li")) == 1
    assert page.of("a")[-1]["href"] == "file:///x/%3Cy%3E.py#L3"
    assert not Page(html.page([report.Report("step", "cpu", 4, ())])).of("li")
