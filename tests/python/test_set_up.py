"""What `make` installs for which target: as little as it needs. Nothing is installed here."""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def installed(target, venv):
    """The sets of Python's packages and of Debian's that a target asks for."""
    done = subprocess.run(
        ["make", "--dry-run", f"VENV={venv}", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    python = re.findall(r"^tools/setup_venv\.sh \S+ \S+ \S+ (.*)", done.stdout, re.M)
    debian = re.findall(r"^tools/debian_packages\.sh \S+ (.*)", done.stdout, re.M)
    return set(" ".join(python).split()), set(" ".join(debian).split())


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("target", "python", "debian"),
    [
        ("demo", {"run"}, {"build"}),
        ("build", {"run"}, {"build"}),
        ("compilers", {"compilers"}, {"build"}),
        ("docs", {"docs"}, {"build"}),
        ("lint", {"lint"}, {"build", "lint"}),
        ("wheels", {"wheels"}, {"build", "wheels"}),
        ("test", {"run", "test"}, {"build", "test"}),
        ("check", {"run", "lint", "test"}, {"build", "lint", "test"}),
        ("setup", {"lint", "test", "docs", "compilers"}, {"build", "lint", "test"}),
    ],
)
def test_a_target_brings_what_it_needs(tmp_path, target, python, debian):
    assert installed(target, tmp_path) == (python, debian)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("target", ["wheels", "wheels-test"])
def test_wheels_are_not_built_under_sudo(tmp_path, target):
    """They would be root's, and pip's cache and the environment as well."""
    done = subprocess.run(
        ["make", "--dry-run", f"VENV={tmp_path}", "SUDO_UID=1000", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode and f"Run make {target} without sudo" in done.stderr


def included(names):
    """Extras, and those that they include."""
    found = set(names)
    for name in names:
        for requirement in EXTRAS[name]:
            if others := re.fullmatch(r"torch_xla_cc\[(.*)\]", requirement):
                found |= included(others[1].split(","))
    return found


def test_set_up_leaves_none_out():
    assert included(["lint", "test", "docs", "compilers"]) | {"dev", "wheels"} == set(EXTRAS)
    assert included(["dev"]) | {"compilers", "wheels"} == set(EXTRAS)


def test_what_the_demo_needs_is_not_much():
    names = {re.split("[=>]", requirement)[0] for requirement in PROJECT["dependencies"]}
    assert names == {"torch", "torch_xla", "numpy", "click", "protobuf", "rich"}


def test_a_clones_own_environment_is_linked_to_it(tmp_path):
    """By tools/link_clone.py: Python and torch_xla find what is there, and pip can take it away."""
    for name in ("pyproject.toml", "tools/link_clone.py", "python/torch_xla_cc/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    venv.create(tmp_path / ".venv")
    python = tmp_path / ".venv/bin/python"
    link = [str(tmp_path / "tools/link_clone.py")]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def said(*command):
        return subprocess.check_output(command, text=True, timeout=60, env=environment)

    said(python, *link)
    said(python, *link)  # as after each change of pyproject.toml
    program = (
        "import sys, importlib.metadata as m; own = m.distribution('torch_xla_cc')\n"
        "print([str(x.locate()) for x in own.files if not x.locate().exists()])\n"
        "print(sorted(x.value for x in own.entry_points), sys.path[-1])"
    )
    expected = f"[]\n['txcc:main', 'txcc_pod:PodPlugin'] {tmp_path / 'python'}\n"
    assert said(python, "-c", program) == expected
    assert (tmp_path / ".venv/bin/txcc").read_text().startswith(f"#!{python}\n")
    (installer,) = tmp_path.glob(".venv/lib/*/site-packages/*.dist-info/INSTALLER")
    record = installer.with_name("RECORD")
    installer.write_text("pip\n")
    record.write_text("of pip")
    assert "pip has installed torch_xla_cc" in said(python, *link)
    assert record.read_text() == "of pip"
    refused = subprocess.run([sys.executable, *link], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1 and "is not of an environment in" in refused.stderr
