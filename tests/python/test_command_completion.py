"""`txcc completion`: what bash and zsh make of it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Prints what bash would offer for each line; Bash itself cuts words at ':' and '='.
BASH = """
eval "$(txcc completion bash)"
compopt() { printf '%s ' compopt "$@"; }
while IFS= read -r line; do
    COMP_LINE=$line; COMP_POINT=${#line}
    _txcc_completion txcc
    echo "${COMPREPLY[*]}"
done
"""
ZSH = """
autoload -Uz compinit && compinit -D
eval "$(txcc completion zsh)"
print $_comps[txcc]
LBUFFER="txcc inspect --target=tpu:v6" CURRENT=3
words=(txcc inspect --target=tpu:v6)
compset() { print compset $* }
compadd() { print $plain }
_txcc_completion
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bin")
    command = folder / "txcc"
    command.write_text(f"#!{sys.executable}\nfrom txcc import main\nmain()\n")
    command.chmod(0o755)
    return {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT / "python"),
    }


def shell(command, environment, text=""):
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.splitlines()


def test_bash(environment):
    offered = {
        "txcc in": "inspect",
        "txcc inspect --st": "--step",
        "txcc inspect --format=j": "json",
        "txcc inspect --target=tpu:v5": "v5e:2x4 v5p:2x2x1",
        "txcc inspect --target gpu:": "a100x8 h100x8 b200x8",
        "txcc inspect --target=cpu --ra": "--ranks --rank",
        "txcc capabilities --op=all_": "all_gather all_reduce all_to_all",
        "txcc capabilities --target=tpu:v6": "v6e",
        "txcc completion z": "zsh",
    }
    command = ["bash", "--norc", "-c", BASH]
    lines = shell(command, environment, "\n".join(offered) + "\n")
    assert dict(zip(offered, lines, strict=True)) == offered


@pytest.mark.parametrize("line", ["txcc inspect tr", "txcc inspect --dump=b", "txcc compare a/ "])
def test_bash_completes_files(environment, line):
    assert (
        shell(["bash", "--norc", "-c", BASH], environment, line + "\n")[0] == "compopt -o default "
    )


def test_zsh(environment):
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed: apt-get install zsh")
    found = shell(["zsh", "-f", "-c", ZSH], environment)
    assert found == ["_txcc_completion", "compset -P *=", "tpu:v6e:2x4"]
