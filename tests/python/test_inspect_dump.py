"""`txcc inspect --dump`: dumps that real programs have written."""

import json
import os
import subprocess
import sys

import forks
import pytest

from torch_xla_cc._inspect import dump, report

RANKS = 4

TORCH = """
import torch, torch_xla, torch_xla.core.xla_model as xm
import torch_xla_cc
from torch_xla_cc import xla_model as ours

def step(rank):
    x = torch.ones(8, 6, device=torch_xla.device()) * rank
    summed = ours.all_reduce("sum", x)  # line 8
    whole = ours.all_gather(x)
    torch_xla.sync()

torch_xla_cc.launch(step, nprocs=4)
"""

JAX = """
import jax, jax.numpy as jnp, functools
from jax.sharding import Mesh, PartitionSpec as P
import numpy as np
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))

@jax.jit
@functools.partial(jax.shard_map, mesh=mesh, in_specs=P("a", "b"), out_specs=P("a", None),
                   check_vma=False)
def f(x):
    y = jax.lax.psum(x, "a")
    return jax.lax.all_gather(y, "b", axis=1, tiled=True)

f(jnp.ones((8, 8))).block_until_ready()  # line 14, which JAX names for all of f
"""


def run(folder, script, **environment):
    """A script of that text, in a process whose XLA writes a dump: the folder of the dump."""
    (folder / "script.py").write_text(script)
    form = environment.pop("form", "text")
    flags = f"--xla_dump_to={folder / 'dump'} --xla_dump_hlo_as_{form}"
    flags += environment.pop("more", "")
    # An interpreter that imports the package: it reads TORCH_XLA_CC_DEBUG then.
    done = subprocess.run(
        [sys.executable, str(folder / "script.py")],
        env={**os.environ, **environment, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "dump"


def reports(folder):
    made = [report.of_files(files) for files in dump.modules(folder)]
    return [one for one in made if one.rows]


@pytest.fixture(scope="module")
def of_torch(tmp_path_factory):
    folder = tmp_path_factory.mktemp("torch")
    return run(folder, TORCH, PJRT_DEVICE="CPU", CPU_NUM_DEVICES=str(RANKS), TORCH_XLA_CC_DEBUG="1")


def test_a_dump_of_torch_xla(of_torch):
    found = reports(of_torch)
    rows = {row.call.partition("(")[0]: row for one in found for row in one.rows}
    assert all(one.world == RANKS for one in found)
    reduced, gathered = rows["all_reduce"], rows["all_gather"]
    assert reduced.before == ("all-reduce",) and reduced.after == "all-reduce"
    assert (reduced.rule, reduced.operands) == ("native", ("f32[8,6]",))
    assert reduced.file.endswith("script.py") and reduced.line == 8
    assert reduced.wire_bytes == 2 * 3 * 8 * 6 * 4 // 4 and reduced.memory_bytes == 2 * 8 * 6 * 4
    assert gathered.after == "all-gather" and gathered.wire_bytes == 3 * 8 * 6 * 4
    assert gathered.results == ("f32[32,6]",) and gathered.line == 9


def test_a_dump_of_jax(tmp_path):
    more = f" --xla_force_host_platform_device_count={RANKS}"
    (made,) = reports(run(tmp_path, JAX, JAX_PLATFORMS="cpu", more=more))
    summed, gathered = made.rows
    assert made.world == RANKS
    assert (summed.before, summed.after) == (("all-reduce",), "all-reduce")
    assert summed.groups == ((0, 2), (1, 3)) and summed.operands == ("f32[4,4]",)
    assert summed.wire_bytes == 4 * 4 * 4 and summed.rule == ""
    assert summed.file.endswith("script.py") and summed.line == 14
    assert gathered.groups == ((0, 1), (2, 3)) and gathered.after == "all-gather"
    assert gathered.wire_bytes == 4 * 4 * 4 and gathered.line == 14


def test_a_dump_of_protos(tmp_path):
    more = f" --xla_force_host_platform_device_count={RANKS}"
    (made,) = reports(run(tmp_path, JAX, JAX_PLATFORMS="cpu", more=more, form="proto"))
    summed, gathered = made.rows
    assert made.world == RANKS
    assert (summed.before, summed.after) == (("all-reduce",), "all-reduce")
    assert summed.groups == ((0, 2), (1, 3)) and summed.operands == ("f32[4,4]",)
    assert gathered.groups == ((0, 1), (2, 3)) and gathered.wire_bytes == 4 * 4 * 4


def test_the_command(of_torch):
    done = forks.txcc("inspect", "--dump", str(of_torch))
    assert done.returncode == 0, done.stderr
    assert "all-reduce" in done.stdout and "script.py:8" in done.stdout
    done = forks.txcc("inspect", "--dump", str(of_torch), "--format=json")
    calls = [row["call"] for one in json.loads(done.stdout) for row in one["rows"]]
    assert any(call.startswith("all_gather") for call in calls)


def test_a_module_that_is_not_there(of_torch):
    for command in (
        ("inspect", "--dump", str(of_torch)),
        ("compare", str(of_torch), str(of_torch)),
    ):
        done = forks.txcc(*command, "--module=typo")
        assert done.returncode == 1
        assert "no module has 'typo' in its name: it has module_" in done.stderr


def test_the_command_without_a_dump(tmp_path):
    done = forks.txcc("inspect")
    assert done.returncode == 2 and "--dump DIR" in done.stderr
    for folder in (tmp_path, tmp_path / "nowhere"):
        done = forks.txcc("inspect", "--dump", str(folder))
        assert (
            done.returncode == 1 and str(folder) in done.stderr and "Traceback" not in done.stderr
        )
    broken = tmp_path / "module_0001.f.cpu_after_optimizations.txt"
    broken.write_text("HloModule f\n\nnothing\n")
    done = forks.txcc("inspect", "--dump", str(tmp_path))
    assert done.returncode == 1 and "line 3, column 1" in done.stderr
    broken.rename(tmp_path / "module_0001.f.cpu_after_optimizations.hlo.pb")
    done = forks.txcc("inspect", "--dump", str(tmp_path))
    assert done.returncode == 1 and "not an HloProto" in done.stderr


def test_files_are_read_without_torch(of_torch):
    for words in (["inspect", "--dump", str(of_torch)], ["compare", *[str(of_torch)] * 2]):
        script = (
            "import sys, txcc\n"
            f"sys.argv[1:] = {words!r}\n"
            "try:\n"
            "    txcc.main()\n"
            "finally:\n"
            "    assert 'torch' not in sys.modules, 'torch'\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "all-" in done.stdout
