"""Advice on programs that are given as text, and how advice is shown."""

import dataclasses
import json

import effort
import pytest
from hypothesis import strategies as st
from test_hlo_fuzz import EDIT, edited
from test_report_html import Page

from torch_xla_cc._hlo import flow
from torch_xla_cc._hlo.text import Reader
from torch_xla_cc._inspect import dump, html, report
from torch_xla_cc._inspect.advice import Advice, of_programs

TPU = "tpu:v5e:2x4"
BYTES = 256 * 128 * 4  # of an operand

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
