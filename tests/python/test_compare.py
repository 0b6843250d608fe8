"""Two programs side by side: `txcc compare`, and what is paired with what."""

import json

import forks
import pytest

from torch_xla_cc._inspect import compare, report

MODULE = """HloModule {name}, replica_count=4

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}}

ENTRY %main (x: f32[8,4]) -> f32[8,4] {{
  %x = f32[8,4]{{1,0}} parameter(0)
{body}
}}
"""
SOURCE = 'metadata={{op_name="{0}" source_file="train.py" source_line={1}}}'
REDUCE = (
    "  %r.{0} = f32[8,4]{{1,0}} all-reduce(%x), replica_groups={{}}, to_apply=%add, "
    + SOURCE.replace("{0}", "grads").replace("{1}", "{0}")
)
GATHER = (
    "  %g.{0} = f32[32,4]{{1,0}} all-gather(%x), replica_groups={{}}, dimensions={{0}}, "
    + SOURCE.replace("{0}", "grads").replace("{1}", "{0}")
)


def write(folder, name, *lines):
    folder.mkdir(exist_ok=True)
    body = "\n".join(line.format(n) for line, n in lines)
    path = folder / f"module_0001.{name}.cpu_after_optimizations.txt"
    path.write_text(MODULE.format(name=name, body=body))
    return path


def compared(a, b):
    (found,) = compare.compare_all(report.of_path(str(a)), report.of_path(str(b)))
    return found


def lines(found):
    return [(p.a and p.a.line, p.b and p.b.line, p.differences) for p in found.pairs]


def test_the_same(tmp_path):
    a = write(tmp_path / "a", "step", (REDUCE, 3), (GATHER, 4))
    b = write(tmp_path / "b", "step", (GATHER, 4), (REDUCE, 3))
    found = compared(a, b)
    assert found.equal and lines(found) == [(3, 3, ()), (4, 4, ())]
    assert "equal" in found.to_text()


def test_another_collective_at_one_line(tmp_path):
    a = write(tmp_path / "a", "step", (REDUCE, 3), (REDUCE, 5))
    b = write(tmp_path / "b", "step", (REDUCE, 3), (GATHER, 5))
    found = compared(a, b)
    same, other = lines(found)
    assert same == (3, 3, ()) and other[:2] == (5, 5)
    assert other[2] == ("before", "after", "wire_bytes", "link_bytes")
    assert not found.equal
    assert f"{3 * 128 - 6 * 128 // 4:+,} bytes" in found.to_text()


def test_more_of_them(tmp_path):
    a = write(tmp_path / "a", "step", (REDUCE, 3))
    b = write(tmp_path / "b", "step", (REDUCE, 3), (REDUCE, 4))
    assert lines(compared(a, b)) == [(3, 3, ()), (None, 4, ("only in one",))]
    assert lines(compared(b, a)) == [(3, 3, ()), (4, None, ("only in one",))]


def test_the_command(tmp_path):
    write(tmp_path / "a", "step", (REDUCE, 3))
    write(tmp_path / "b", "step", (GATHER, 3))
    write(tmp_path / "b", "other", (GATHER, 3))
    done = forks.txcc("compare", tmp_path / "a", tmp_path / "a")
    assert done.returncode == 0 and "equal" in done.stdout, done.stderr
    done = forks.txcc("compare", tmp_path / "a", tmp_path / "b", "--format=json")
    assert done.returncode == 1, done.stderr
    found = {one["b"]["module"].rpartition(".")[2]: one for one in json.loads(done.stdout)}
    assert found["step"]["pairs"][0]["a"]["after"] == "all-reduce"
    assert found["other"]["pairs"][0]["a"] is None
    for wrong in ((), (tmp_path,), (tmp_path,) * 3):
        done = forks.txcc("compare", *wrong)
        assert done.returncode == 2 and "two folders or files" in done.stderr
    done = forks.txcc("compare", tmp_path / "a", tmp_path / "nothing")
    assert done.returncode == 1 and "nothing" in done.stderr


@pytest.mark.parametrize("format", ["text", "json"])
def test_capabilities(format):
    done = forks.txcc("capabilities", "--op=all_to_all", "--target=tpu:v5e", f"--format={format}")
    assert done.returncode == 0 and "all-to-all" in done.stdout, done.stderr
    assert "native" in done.stdout
    if format == "json":
        assert json.loads(done.stdout)[0]["op"] == "all_to_all"


def test_capabilities_of_nothing():
    done = forks.txcc("capabilities", "--op=all_to_none")
    assert done.returncode == 2 and "all_to_none" in done.stderr and "all_to_all" in done.stderr
