"""What an sdist has: all that git has. (Wheels are built and tried by `make wheels-test`.)"""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, BUILD = SETTINGS["project"], SETTINGS["build-system"]
# What setuptools adds.
ADDED = {"PKG-INFO", "setup.cfg"}


@pytest.fixture(scope="module")
def of_git():
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in done.stdout.splitlines() if (ROOT / name).exists()}


def test_an_sdist_has_what_git_has(tmp_path, of_git):
    command = [sys.executable, "setup.py", "egg_info", f"--egg-base={tmp_path}"]
    command += ["sdist", f"--dist-dir={tmp_path}"]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        names = {member.name.partition("/")[2] for member in file if member.isfile()}
    names = {name for name in names if ".egg-info/" not in name} - ADDED
    assert names >= of_git, sorted(of_git - names)
    tracked = {name.partition("/")[0] for name in of_git}
    assert {name.partition("/")[0] for name in names} <= tracked
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def test_all_pythons_are_said_and_built():
    said = [
        name.rpartition(" ")[2]
        for name in PROJECT["classifiers"]
        if name.startswith("Programming Language :: Python :: 3.")
    ]
    assert said == ["3.10", "3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == ">=3.10,<3.14"
    assert f"PYTHONS ?= {' '.join(said)}\n" in (ROOT / "Makefile").read_text()
    root = (ROOT / "tools/wheels/root.sh").read_text()
    assert all(f"  {version}) suite=" in root for version in said)


def test_licences_are_there():
    assert all((ROOT / name).is_file() for name in PROJECT["license-files"])


def test_an_old_setuptools_is_told(tmp_path):
    """As a new environment of Python 3.11 has it: its own message is of 90 lines."""
    (tmp_path / "setuptools.py").write_text('__version__ = "65.5.0"\nExtension = setup = None\n')
    done = subprocess.run(
        [sys.executable, ROOT / "setup.py"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1 and "pip install 'setuptools>=77'" in done.stderr
    (needed,) = (one for one in BUILD["requires"] if one.startswith("setuptools"))
    assert needed == "setuptools>=77"
