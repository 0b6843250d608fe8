"""What `make` installs for which target: as little as it needs. Nothing is installed here."""

import re
import shutil
import subprocess
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
