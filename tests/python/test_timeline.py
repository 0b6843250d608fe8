"""The step as a timeline, and two of them side by side; programs of thousands of instructions."""

import dataclasses
import json
import os
import re
import subprocess
from html import escape

import pytest
from click.testing import CliRunner
from test_report_html import CHROMIUM, Page

from torch_xla_cc._inspect import html, html_compare, load, quotes, report, schedule
from torch_xla_cc._inspect.advice import Advice
from torch_xla_cc._inspect.compare import compare_all
from txcc import cli

EVIL = "<script>alert(1)</script>\"&'</details>"
SOURCE = 'metadata={{op_name="{0}" source_file="/{0}.py" source_line={1}}}'


def program(turns, per_turn, name="step", evil="train"):
    """All-reduces that run beside a product, one that waits at the end, and sums between them."""
    source = SOURCE.format(evil.replace('"', "'"), 7)
    lines = [
        f"HloModule {name}, is_scheduled=true, replica_count=4",
        "%add (a: f32[], b: f32[]) -> f32[] {",
        "  %a = f32[] parameter(0)",
        "  %b = f32[] parameter(1)",
        "  ROOT %sum = f32[] add(%a, %b)",
        "}",
        "ENTRY %main (x: f32[64,64]) -> f32[64,64] {",
        "  %last = f32[64,64]{1,0} parameter(0)",
    ]
    last = "last"
    for turn in range(turns):
        for i in range(per_turn):
            lines.append(f"  %add.{turn}.{i} = f32[64,64]{{1,0}} add(%{last}, %{last}), {source}")
            last = f"add.{turn}.{i}"
        lines += [
            f"  %ar.{turn} = f32[64,64]{{1,0}} all-reduce-start(%{last}), replica_groups={{}}, "
            f"to_apply=%add, {source}",
            f"  %dot.{turn} = f32[64,64]{{1,0}} dot(%{last}, %{last}), lhs_contracting_dims={{1}}, "
            f"rhs_contracting_dims={{0}}, {source}",
            f"  %done.{turn} = f32[64,64]{{1,0}} all-reduce-done(%ar.{turn}), {source}",
        ]
        last = f"done.{turn}"
    lines.append(
        f"  ROOT %all = f32[64,64]{{1,0}} all-reduce(%{last}), replica_groups={{{{0,1}},{{2,3}}}}, "
        f"to_apply=%add, {source}"
    )
    return "\n".join([*lines, "}"])


@pytest.fixture
def made(tmp_path):
    def make(*args, **kwargs):
        path = tmp_path / "module.txt"
        path.write_text(program(*args, **kwargs))
        (found,) = report.of_path(str(path))
        return found

    return make


def test_the_parts_of_a_schedule(made):
    found = made(2, 3)
    kinds = [(part.kind, part.count, part.row) for part in found.schedule]
    turn = [("computes", 3, -1), ("starts", 1, 0), ("computes", 1, -1), ("ends", 1, 0)]
    assert kinds[:4] == turn
    assert kinds[4:] == [
        *((kind, count, row + 1 if row == 0 else row) for kind, count, row in turn),
        ("whole", 1, 2),
    ]
    adds, _, dot, *_ = found.schedule
    assert adds.work_bytes == 3 * 3 * 64 * 64 * 4 and not adds.others
    assert dot.work_bytes == found.rows[0].beside_bytes
    assert dot.lines[0].text == "%dot.0 = f32[64,64] dot(%add.0.2, %add.0.2)"
    assert (dot.lines[0].what, dot.lines[0].file, dot.lines[0].line) == ("dot", "/train.py", 7)


def test_a_large_program_stays_small(made):
    found = made(40, 200)
    assert sum(part.count for part in found.schedule if part.kind == "computes") == 40 * 201
    runs = [part for part in found.schedule if part.count > 1]
    assert len(runs) == 40 and all(len(part.lines) == 24 for part in runs)
    assert runs[0].others == "176 add"
    assert len(found.to_html()) < 400_000
    most = made(340, 1)
    assert len(most.schedule) == schedule.MOST_PARTS
    assert f"The first {schedule.MOST_PARTS:,} pieces are shown" in most.to_html()
    page = Page(most.to_html())  # links lead to what is there, also where rows are left out
    assert not page.open
    ids = {f"#{attributes['id']}" for _, attributes in page.tags if "id" in attributes}
    assert {one["href"] for one in page.of("a") if one["href"].startswith("#")} == ids


def test_the_page_shows_what_overlaps(made):
    page = Page(made(2, 3).to_html())
    assert not page.open
    flights = [one for one in page.of("span") if one.get("class", "").startswith("flight")]
    assert [one["style"] for one in flights] == [
        "grid-row:2/5;grid-column:2",  # from its start to behind its done
        "grid-row:6/9;grid-column:2",
    ]
    pieces = [one["class"] for one in page.of("div") if one.get("class", "").startswith("piece")]
    assert pieces[:4] == [
        "piece computes",
        "piece starts busy",
        "piece computes beside",
        "piece ends busy",
    ]
    assert pieces[-1] == "piece whole idle"
    assert "%dot.0 = f32[64,64] dot(%add.0.2, %add.0.2)" in page.text
    assert "file:///train.py#L7" in {one["href"] for one in page.of("a")}


@pytest.fixture
def quoting(made, tmp_path):
    """The page of a report that names a file, made in a folder."""
    (tmp_path / "here").mkdir()
    (tmp_path / "train.py").write_text("a = 1\n" * 5 + "if a < 2:\n    loss = f(x)\nb = 2\n")
    (tmp_path / "secret.txt").write_text("a = 1\n" * 9)
    (tmp_path / "here/link.py").symlink_to(tmp_path / "train.py")

    def page(name, *sources):
        found = made(1, 1)
        parts = []
        for part in found.schedule:
            lines = [dataclasses.replace(one, file=name) for one in part.lines]
            parts.append(dataclasses.replace(part, lines=tuple(lines)))
        changed = report.Report(**{**vars(found), "schedule": tuple(parts)})
        return html.page([changed], quotes.Quotes(sources))

    return page


QUOTED = "    6  if a &lt; 2:\n<b>    7      loss = f(x)</b>\n    8  b = 2</pre>"


def test_lines_of_python_are_shown(quoting, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert QUOTED in quoting(f"{tmp_path}/train.py") and QUOTED in quoting("train.py")
    assert "<pre" not in quoting("secret.txt") and "<pre" not in quoting("absent.py")


def test_lines_from_elsewhere_are_not_shown(quoting, tmp_path, monkeypatch):
    """A report of another machine may name any file; so may a link, or dots."""
    monkeypatch.chdir(tmp_path / "here")
    for name in (f"{tmp_path}/train.py", "../train.py", "link.py", os.__file__, "os.py", "a\0.py"):
        assert "<pre" not in quoting(name), name
    assert QUOTED in quoting(f"{tmp_path}/train.py", tmp_path)


def test_folders_whose_lines_are_shown_are_for_pages(tmp_path):
    result = CliRunner().invoke(cli.txcc, ["compare", "--source", str(tmp_path), "a", "b"])
    assert result.exit_code == 2 and "--source has no effect beside --format=text" in result.output


def test_names_are_text(made):
    found = made(2, 2, name="step", evil=EVIL)
    assert EVIL.replace('"', "'") in found.rows[0].file
    hostile = report.Report(**{**vars(found), "module": EVIL, "target": EVIL})
    tags = {tag for tag, _ in Page(made(2, 2).to_html()).tags}
    compared = compare_all([hostile], [hostile])
    for page in (hostile.to_html(), html_compare.page(compared)):
        assert "<script" not in page and escape(EVIL) in page
        assert {tag for tag, _ in Page(page).tags} <= tags | {"section"}


def test_reports_come_back_from_json(made, tmp_path):
    found = made(3, 2)
    path = tmp_path / "report.json"
    path.write_text(f"[{found.to_json()}]")
    (back,) = load.records(path)
    assert vars(back) == vars(found)
    advice = Advice("joined", "Join them.", (("train.py", 3),), 8, "memory", 2)
    found = report.Report(**{**vars(found), "advice": (advice,)})
    path.write_text(f"[{found.to_json()}]")
    assert load.records(path)[0].advice == (advice,)
    path.write_text(path.read_text().replace('"memory"', '"disk"'))
    with pytest.raises(load.ReportError, match=r"Advice.saved_on = 'disk'"):
        load.records(path)
    path.write_text(json.dumps([{**json.loads(found.to_json()), "version": 99}]))
    with pytest.raises(load.ReportError, match=r"report.json: .* version = 99, but 1 is read"):
        load.records(path)
    path.write_text("{")
    with pytest.raises(load.ReportError, match="txcc inspect --format=json"):
        load.records(path)


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        ("schedule", "row", 99),
        ("schedule", "kind", 'x"><meta http-equiv=refresh content="0;url=https://example.com">'),
        ("schedule", "work_bytes", "12"),
        ("rows", "wire_bytes", "12"),
        ("rows", "file", 5),
        ("rows", "groups", [[0, "1"]]),
        ("rows", "asynchronous", 1),
        (None, "world", True),
        (None, "memory", {"arguments": None}),
    ],
)
def test_what_a_report_may_not_say(made, tmp_path, where, name, value):
    report = json.loads(made(3, 2).to_json())
    within = report if where is None else report[where][-1]
    assert name in within
    within[name] = value
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report))
    with pytest.raises(load.ReportError, match=name):
        load.records(path)


def test_before_and_after(made):
    page = html_compare.page(compare_all([made(2, 3)], [made(3, 3)]))
    parsed = Page(page)
    assert not parsed.open and not parsed.of("script")
    assert "0 collectives differ, 0 are only before, 1 only after" in parsed.text
    assert "not there" in parsed.text
    assert [one.get("aria-label") for one in parsed.of("section")] == ["before", "after"]
    assert re.search(r"instructions: all-reduce</td><td>.*>3<.*>4<.*\+1 \(\+33\.3%\)", page)
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)


# Each page in a frame as wide as a phone: how wide its content is, and a piece that is opened.
FRAMES = """<!DOCTYPE html><body>{frames}<script>
onload = () => {{ const frames = [...document.querySelectorAll("iframe")];
  document.body.dataset.seen = JSON.stringify(frames.map(frame => {{
  const page = frame.contentDocument, piece = page.querySelector(".computes details");
  const closed = piece.getBoundingClientRect().height;
  piece.querySelector("summary").click();
  const flight = page.querySelector(".flight").getBoundingClientRect();
  return [page.documentElement.scrollWidth, piece.getBoundingClientRect().height > closed,
    flight.height > 40, page.querySelectorAll(".scale").length];
}})); }};
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium: make packages-test")
def test_on_a_phone(made, tmp_path):
    large = made(40, 200)
    pages = [html.page([large]), html_compare.page(compare_all([large], [made(3, 2)]))]
    frames = "".join(
        f'<iframe width="390" height="800" srcdoc="{escape(page)}"></iframe>' for page in pages
    )
    path = tmp_path / "frames.html"
    path.write_text(FRAMES.format(frames=frames))
    shown = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"),
            *(f"--user-data-dir={tmp_path / 'profile'}", f"file://{path}"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    (body,) = [one for tag, one in Page(shown).tags if tag == "body" and "data-seen" in one]
    for width, opens, long, bars in json.loads(body["data-seen"]):
        assert width <= 390 and opens and long and bars > 100
