"""Importing the package: the versions that it takes, what it leaves alone, what it links to."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torch_xla_cc import _C

EXTENSION = Path(_C.__file__)


def python(script: str) -> str:
    """The output of a script in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def tool(*command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} of binutils is not installed")
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


# importlib.metadata as it answers where other versions are installed.
IMPORT_WITH = """
import importlib.metadata, sys
real = importlib.metadata.version
def version(name):
    if name not in {versions!r}:
        return real(name)
    if {versions!r}[name] is None:
        raise importlib.metadata.PackageNotFoundError(name)
    return {versions!r}[name]
importlib.metadata.version = version
try:
    import torch_xla_cc
except ImportError as error:
    print(type(error).__name__, "|", error)
    assert "torch" not in sys.modules, "something native was loaded before the check"
    assert "torch_xla" not in sys.modules
else:
    print("imported")
"""


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ({"torch": "2.8.0"}, ["torch 2.8.0 is installed"]),
        ({"torch": "2.9.1+cpu"}, ["torch 2.9.1+cpu is installed"]),
        ({"torch_xla": "2.10.0"}, ["torch_xla 2.10.0 is installed"]),
        ({"torch_xla": "2.9.0rc1"}, ["torch_xla 2.9.0rc1 is installed"]),
        ({"torch_xla": None}, ["torch_xla is not installed"]),
        (
            {"torch": "2.7.0", "torch_xla": None},
            ["torch 2.7.0 is installed", "torch_xla is not installed"],
        ),
    ],
    ids=str,
)
def test_other_versions_are_refused_before_anything_is_loaded(versions, told):
    kind, _, message = python(IMPORT_WITH.format(versions=versions)).partition(" | ")
    assert kind == "UnsupportedVersion"
    assert "pip install torch==2.9.0 torch_xla==2.9.0" in message
    for words in told:
        assert words in message


@pytest.mark.parametrize("version", ["2.9.0", "2.9.0+cpu", "2.9.0+cu128"])
def test_builds_of_the_same_version_are_taken(version):
    assert python(IMPORT_WITH.format(versions={"torch": version})) == "imported"


# Everything that could be patched: modules, and what the dispatcher has for the ops of read hooks.
SNAPSHOT = """
import torch, torch_xla, torch.distributed
import torch_xla.core.xla_model, torch_xla.runtime, torch_xla.distributed.xla_backend
MODULES = [
    torch, torch.Tensor, torch.distributed, torch.distributed.distributed_c10d,
    torch_xla, torch_xla._XLAC, torch_xla.core.xla_model, torch_xla.runtime,
    torch_xla.distributed.xla_backend,
]
def snapshot():
    return {(str(m), k): v for m in MODULES for k, v in vars(m).items()}
def kernels():
    names = ["_local_scalar_dense", "_to_copy", "_copy_from", "_to_cpu", "nonzero"]
    names = [f"aten::{name}" for name in names]
    names += [f"_c10d_functional::all_{name}" for name in ("reduce", "to_all_single")]
    return [torch._C._dispatch_dump_table(name) for name in names]
"""


def test_importing_takes_a_pin_and_changes_nothing_else():
    out = python(f"""{SNAPSHOT}
before, kernels_before = snapshot(), kernels()
import torch_xla_cc
after = snapshot()
print(len(before), [key for key in after if after[key] is not before.get(key)])
print([key for key in before if key not in after])
for old, new in zip(kernels_before, kernels(), strict=True):
    for one, other in zip(old.splitlines(), new.splitlines(), strict=True):
        if one != other:
            print(one, "->", other)
""")
    counted, gone, *kernels = out.splitlines()
    number, _, changed = counted.partition(" ")
    assert int(number) > 1000
    assert {key for _, key in eval(changed)} == {
        *("_xla_all_reduce", "_xla_all_reduce_inplace", "_xla_all_gather", "_xla_all_gather_out"),
        *("_xla_reduce_scatter", "_xla_reduce_scatter_out"),
        *("_xla_reduce_scatter_coalesced", "_xla_reduce_scatter_coalesced_out"),
    }
    assert gone == "[]"
    [kernel] = kernels  # of torch_xla's all_reduce of all ranks
    assert re.fullmatch("XLA: .*cross_replica_reduces.* -> XLA: .*registration.*", kernel)


def test_importing_starts_no_runtime_and_sets_no_variable():
    out = python("""
import torch_xla, os
before = dict(os.environ)
import torch_xla_cc
print(torch_xla._XLAC._xla_runtime_is_initialized(), dict(os.environ) == before)
""")
    assert out == "False True"


def test_the_extension_exports_its_module_only():
    lines = tool("nm", "-D", "--defined-only", str(EXTENSION)).splitlines()
    assert [line.split()[-1] for line in lines] == ["PyInit__C"]


def test_the_extension_links_to_no_protobuf():
    dynamic = tool("readelf", "-d", str(EXTENSION))
    needed = [line for line in dynamic.splitlines() if "(NEEDED)" in line]
    assert any("libtorch" in line for line in needed)
    assert not [line for line in needed if "protobuf" in line or "absl" in line]
    symbols = tool("nm", "-D", "--undefined-only", str(EXTENSION))
    assert "protobuf" not in symbols


def test_in_the_root_of_the_repository_the_package_is_found():
    """And not the folder of the C++, which has its name."""
    root = Path(__file__).parents[2]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    script = (
        "import torch_xla_cc.adapters.cuda as x, torch_xla_cc as y; print(x.__file__, y.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    package = root / "python/torch_xla_cc"
    assert done.stdout.split() == [str(package / "adapters/cuda.py"), str(package / "__init__.py")]
