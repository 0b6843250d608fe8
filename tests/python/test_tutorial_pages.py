"""README.md and the tutorial: a reader saves files and types commands, and so does this test.

`<!-- file: NAME -->` stands before a block that the reader saves, `<!-- shell -->` before commands,
and `<!-- prints -->` or `<!-- prints, in any order -->` before what they print; `...` stands for
anything. `<!-- needs: PAGE -->` is for files of another page. The commands run in one folder, which
also has the repository's `examples`.

They run what a wheel installed (tools/wheels/in_root.sh), without one what is in the repository.
Not every version of Python has what each command needs: those are left out there, by name.
"""

import importlib.metadata
import importlib.util
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/tutorial/*.md"))]
BLOCK = re.compile(
    r"^<!-- (?P<mark>(?:file|shell|prints).*?) -->\n```\w+\n(?P<text>.*?)^```$", re.M | re.S
)
NEEDS = re.compile(r"^<!-- needs: (\S+) -->$", re.M)
# What pip would have installed: commands, and the entry point by which torch_xla finds the pod.
COMMANDS = {"python": "", "torchrun": "-m torch.distributed.run", "txcc": "-m txcc"}
ENTRY_POINT = "[torch_xla.plugins]\npod = txcc_pod:PodPlugin\n"
# By a pattern of a command or of a file that it runs.
PACKAGES = {r"PJRT_DEVICE=POD|pod=True": "jaxlib", r"\btpu:": "libtpu"}


def blocks(page):
    return [(block["mark"], block["text"]) for block in BLOCK.finditer(page.read_text())]


def files(page):
    """What the reader has saved of a page, by name."""
    return {
        mark.removeprefix("file: "): text for mark, text in blocks(page) if mark.startswith("file")
    }


def test_all_marks_are_read():
    for page in PAGES:
        marks = re.findall(r"^<!-- (?:file|shell|prints)", page.read_text(), re.M)
        assert len(marks) == len(blocks(page)), page.name
        if page.name != "index.md":
            assert any(mark == "shell" for mark, _ in blocks(page)), page.name


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """That of a reader who has installed the package."""
    names = ("XLA_", "PJRT_", "CPU_NUM", "TORCH_XLA_CC_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    kept["OMP_NUM_THREADS"] = "1"
    if not (ROOT / "python").exists():
        importlib.metadata.version("torch_xla_cc")
        return {**kept, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    folder = tmp_path_factory.mktemp("installed")
    for name, arguments in COMMANDS.items():
        command = folder / name
        command.write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        command.chmod(command.stat().st_mode | stat.S_IXUSR)
    information = folder / "torch_xla_cc-0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_xla_cc\nVersion: 0\n")
    (information / "entry_points.txt").write_text(ENTRY_POINT)
    paths = (str(ROOT / "python"), str(folder), os.environ.get("PYTHONPATH", ""))
    return {
        **kept,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": ":".join(filter(None, paths)),
    }


def lacks(commands, folder):
    """The package that the commands need and that is not installed."""
    named = [folder / name for name in re.findall(r"\S+\.py\b", commands)]
    text = "".join([commands, *(path.read_text() for path in named)])
    for pattern, package in PACKAGES.items():
        if re.search(pattern, text) and not importlib.util.find_spec(package):
            assert not (ROOT / "python").exists(), f"{package} is not installed"
            return package
    return None


def check(printed, expected, in_any_order):
    if in_any_order:
        lines = printed.splitlines()
        patterns = expected.splitlines()
        assert len(lines) == len(patterns), printed
        pairs = zip(sorted(lines), sorted(patterns), strict=True)
    else:
        pairs = [(printed, expected)]
    for text, wanted in pairs:
        pattern = ".*".join(re.escape(part) for part in wanted.split("..."))
        assert re.fullmatch(pattern, text, re.S), f"{printed}\n-- and not\n{expected}"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page, environment, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for other in NEEDS.findall(page.read_text()):
        for name, text in files(page.with_name(other)).items():
            (tmp_path / name).write_text(text)
    printed = ""
    left_out = {}
    for mark, text in blocks(page):
        if mark.startswith("file: "):
            (tmp_path / mark.removeprefix("file: ")).write_text(text)
        elif mark == "shell" and (package := lacks(text, tmp_path)):
            left_out[text.strip()] = package
            printed = None
        elif mark == "shell":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", text],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=400,
            )
            assert done.returncode == 0, f"{text}{done.stdout[-2000:]}{done.stderr[-4000:]}"
            # A table is as wide as the terminal.
            printed = "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())
        elif printed is not None:
            check(printed, text, "any order" in mark)
    if left_out:
        pytest.skip("; ".join(f"`{text}` needs {package}" for text, package in left_out.items()))
