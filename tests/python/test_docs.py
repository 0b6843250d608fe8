"""The documents: labels and fields of docs/spec.md, links, and the examples, which are run.

An example is a fenced block of Python after a comment `<!-- run: N -->`. One that launches ranks is
a program of its own, run with N devices. Any other is run on each of N ranks, with the names that
docs/guide.md lists. `<!-- prints -->` and a fenced text after a program say what it prints; `...`
stands for anything.
"""

import fnmatch
import os
import re
from pathlib import Path
from typing import NamedTuple

import forks
import pytest
import torch
import torch_xla
import worlds

import torch_xla_cc
from torch_xla_cc import xla_model as xm

ROOT = Path(__file__).parents[2]
SPEC = (ROOT / "docs/spec.md").read_text()
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SOURCES = [
    path
    for folder in ("lowering", "torch_xla_cc", "python")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".cc", ".h", ".py")
]
OPS = re.findall(
    r"^COLLECTIVE\(\w+, (\w+)\)", (ROOT / "lowering/collectives.def").read_text(), re.M
)

# What a refusal starts with, in C++; and how a message or a comment names a constraint.
REFUSAL = re.compile(r'(?:Refuse\(\s*\{|Wrong\()"(\w+)"')
LABEL = re.compile(r"\(([A-Z]\d)\)")


def section(title: str, level: str = "##") -> str:
    """The text of a section of the specification."""
    found = re.search(rf"^{level} {re.escape(title)}\n(.*?)(?=^##? |\Z)", SPEC, re.M | re.S)
    assert found, f"docs/spec.md has no section {title!r}"
    return found[1]


def test_labels_are_those_of_the_sources():
    texts = [path.read_text() for path in SOURCES]
    refused = {label for text in texts for label in REFUSAL.findall(text)}
    named = {label for text in texts for label in LABEL.findall(text)}
    assert refused >= {"A0", "O1", "G1", "P1", "S1", "B1", "R1", "T1", "C1"}
    tables = re.findall(r"^\| \(([A-Z]\d)\) \|", section("Constraints"), re.M)
    assert len(tables) == len(set(tables))
    assert set(tables) == refused
    assert named <= refused
    assert set(LABEL.findall(SPEC)) == refused


def test_files_that_documents_name_exist():
    """By their last parts: `graph/attach.cc`. Of torch and torch_xla from the package's name on."""
    ours = [path.relative_to(ROOT).as_posix() for path in (*SOURCES, *ROOT.glob("*"))]
    for folder in (
        "lowering",
        "pod",
        "torch_xla_cc",
        "python",
        "docs",
        "tests",
        "tools",
        "benchmarks",
        "examples",
        "bazel",
    ):
        ours += [path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*.*")]
    others = [Path(module.__file__).parents[1] for module in (torch, torch_xla)]

    def exists(name: str) -> bool:
        if name.startswith(("torch/", "torch_xla/")):
            return any((folder / name).exists() for folder in others)
        pattern = "*/" + re.sub(r"<\w+>", "*", name)
        return any(fnmatch.fnmatch("/" + path, pattern) for path in ours)

    named = [
        (document.name, name)
        for document in DOCUMENTS
        if document.name != "CHANGELOG.md"  # which tells of what was
        for name in re.findall(
            r"`([\w./*<>-]+\.(?:cc|h|py|pyi|def|inc|md|json|toml|bzl|map))`", document.read_text()
        )
    ]
    assert len(named) > 50
    assert [(document, name) for document, name in named if not exists(name)] == []


def test_every_op_has_a_section():
    assert len(OPS) >= 8
    assert [op for op in re.findall(r"^## (\w+)$", SPEC, re.M) if op in OPS] == OPS


@pytest.mark.parametrize("op", OPS)
def test_fields_are_those_of_the_node_in_order(op):
    node = (ROOT / f"lowering/ops/{op}.h").read_text()
    fields = re.findall(r'visit\("(\w+)"', node)
    assert fields
    assert re.findall(r"^\| `(\w+)` \|", section(op), re.M) == fields
    # The operator of the dispatcher is made from the same list.
    arguments = getattr(torch.ops.xla_cc, op).default._schema.arguments
    assert [argument.name for argument in arguments] == ["operands", *fields]


@pytest.mark.parametrize("op", OPS)
def test_sections_say_it_all(op):
    for item in ("Operands", "Results", "Constraints", "Native", "Fallback", "Numerics"):
        assert f"- **{item}**" in section(op), item
    assert "- **0-dimensional operands**" in section(op)
    # The equation that opens the fallback in the source.
    source = (ROOT / f"lowering/ops/{op}.cc").read_text()
    equations = re.findall(rf"^ *// ((?:{op}|send ; recv)\b.* = .*)$", source, re.M)
    assert equations
    words = " ".join(section(op).split())
    for equation in equations:
        assert equation.partition(" = ")[2].strip(".").rstrip(":,") in words, equation


LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for link in LINK.findall(path.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


# Files of this repository, named in running text.
NAMED = re.compile(
    r"`((?:lowering|torch_xla_cc|python|tests|examples|benchmarks|tools|docs|\.ci)/[\w/.-]+)`"
)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_are_named_exist(path):
    missing = [name for name in NAMED.findall(path.read_text()) if not (ROOT / name).exists()]
    # What a benchmark writes need not be there.
    assert [name for name in missing if name != "docs/benchmarks.md"] == []


class Example(NamedTuple):
    document: str
    line: int
    ranks: int
    code: str
    prints: str | None


BLOCK = re.compile(
    r"^<!-- run: (?P<ranks>\d+) -->\n```python\n(?P<code>.*?)^```\n"
    r"(?:\n<!-- prints -->\n```text\n(?P<prints>.*?)^```\n)?",
    re.M | re.S,
)


WITH_EXAMPLES = (
    "docs/guide.md",
    "docs/distributed.md",
    "docs/gradients.md",
    "docs/inspect.md",
)


def examples() -> list[Example]:
    found = []
    for name in WITH_EXAMPLES:
        text = (ROOT / name).read_text()
        for block in BLOCK.finditer(text):
            line = text.count("\n", 0, block.start("code"))
            found.append(Example(name, line, int(block["ranks"]), block["code"], block["prints"]))
    return found


LAUNCHES = re.compile(r"\b(launch|compare_ranks)\(")
PROGRAMS = [example for example in examples() if LAUNCHES.search(example.code)]
FRAGMENTS = [example for example in examples() if not LAUNCHES.search(example.code)]


def place(example: Example) -> str:
    return f"{example.document}:{example.line}"


def test_examples_are_found():
    for name in WITH_EXAMPLES:
        text = (ROOT / name).read_text()
        for marker, count in (
            ("<!-- run:", sum(example.document == name for example in examples())),
            ("<!-- prints", sum(e.document == name and bool(e.prints) for e in PROGRAMS)),
        ):
            assert text.count(marker) == count, (name, marker)
    assert len(PROGRAMS) >= 4
    assert len(FRAGMENTS) >= 6


@pytest.mark.parametrize("example", PROGRAMS, ids=place)
def test_program(example, tmp_path):
    script = tmp_path / "example.py"
    script.write_text(example.code)
    cleared = {name: value for name, value in os.environ.items() if not name.startswith("XLA_")}
    environment = {**cleared, "PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(example.ranks)}
    done = forks.run_script(script, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    if example.prints is not None:
        pattern = ".*".join(re.escape(part) for part in example.prints.split("..."))
        assert re.fullmatch(pattern, done.stdout), f"{done.stdout}\n{example.prints}"


def run_fragment(rank: int, document: str, line: int, code: str) -> None:
    names = {
        "rank": rank,
        "torch": torch,
        "torch_xla": torch_xla,
        "torch_xla_cc": torch_xla_cc,
        "xm": xm,
    }
    exec(compile("\n" * line + code, document, "exec"), names)


@pytest.mark.parametrize("example", FRAGMENTS, ids=place)
def test_fragment(example):
    worlds.run(example.ranks, run_fragment, example.document, example.line, example.code)


MESSAGE = re.compile(r"^(\w+): ([\w ]+) = .*, but it must be .* \((\w\d)\)\. ", re.S)


def messages() -> list[str]:
    """Messages that the documents quote as indented text."""
    quoted = []
    for path in DOCUMENTS:
        for block in re.findall(r"\n\n((?: {4}.*\n)+)", path.read_text()):
            text = " ".join(block.split())
            if MESSAGE.match(text):
                quoted.append(text)
    return quoted


def refused(rank: int) -> list[str]:
    """What the calls that the documents have in mind really say."""
    x = torch.ones(6, 8, device=torch_xla.device())
    said = []
    for call in (
        lambda: xm.reduce_scatter(xm.REDUCE_SUM, x),
        lambda: xm.all_gather(x, dim=2),
        lambda: xm.all_gather(x, groups=[[0, 1], [2, 0]]),
        lambda: xm.all_reduce("avg", x),
    ):
        try:
            call()
        except ValueError as error:
            said.append(str(error))
    return said


def test_messages_that_are_quoted_are_real():
    [said, *_] = worlds.run(4, refused)
    assert len(said) == 4
    assert messages()
    for message in messages():
        assert message in said
