"""How a pod starts: found by torch_xla when it is installed, by torchrun and by a launch."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pods
import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "python"

SUMS = """
import os
import torch
import torch_xla
from torch_xla import runtime
from torch_xla.core import xla_model as xm

def main(index):
    import torch_xla.distributed.xla_backend
    if "TORCHELASTIC_RUN_ID" in os.environ:
        torch.distributed.init_process_group("xla", init_method="xla://")
    total = xm.all_reduce(xm.REDUCE_SUM, torch.full((3,), runtime.global_ordinal() + 1.0).to("xla"))
    line = f"{runtime.global_ordinal()} of {runtime.world_size()}: {total.cpu().tolist()}\\n"
    os.write(1, line.encode())

if __name__ == "__main__":
    torch_xla.launch(main)
"""

ENV = """
import sys
import torch
import torch.distributed as dist
import torch_xla_cc.distributed
from torch_xla import runtime

dist.init_process_group(sys.argv[1])
x = torch.full((2,), dist.get_rank() + 1.0, device="xla")
dist.all_reduce(x)
said = f"rank {runtime.global_ordinal()} of {runtime.world_size()}: {x.tolist()}"
sys.stdout.write(said + "\\n")  # at once: the others say it at the same time
sys.stdout.flush()
if "raises" in sys.argv:
    from torch_xla_cc import xla_model as xm
    if dist.get_rank() == 0:
        1 / 0
    xm.all_reduce("sum", x).tolist()
dist.destroy_process_group()
"""

# Whose peers wait for it in vain.
LATE = """
import datetime, time
import torch
import torch.distributed as dist
import torch_xla_cc.distributed

dist.init_process_group("xla_cc", timeout=datetime.timedelta(seconds=10))
x = torch.full((2,), 1.0, device="xla")
time.sleep(0 if dist.get_rank() else 20)
dist.all_reduce(x)
x.tolist()
"""

# The child's own exit functions run: torch_xla's wait for threads that it has not.
FORKS = """
import atexit, os, sys, time
import torch, torch_xla
x = torch.arange(3.0).to("xla") + 1
torch_xla.sync(wait=True)
import txcc_pod
from torch_xla.experimental import plugins
if not os.fork():
    plugins.default()._leave(os.getppid())
    os._exit(0)
os.wait()
time.sleep(1)
print((x + 0).tolist())
"""


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    """An environment in which the package is installed, as far as its entry points tell."""
    return pods.installed(tmp_path_factory.mktemp("site"))


def run(*command, env, timeout=120):
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env=env, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


def test_importing_torch_xla_starts_nothing(env):
    code = (
        "import os, sys, torch_xla; sys.path.append(sys.argv[1]); import pods; "
        "from torch_xla.experimental import plugins; "
        "print('POD' in plugins._plugin_registry, 'torch_xla_cc' in sys.modules, "
        "'jaxlib' in sys.modules, pods.device_processes([os.getpid()]))"
    )
    paths = os.pathsep.join([env["PYTHONPATH"], str(ROOT / "tests/harness")])
    done = run("-c", code, Path(__file__).parent, env={**env, "PYTHONPATH": paths})
    assert done.stdout == "True False False {}\n", done.stderr


def test_one_process(env):
    code = "import torch, torch_xla; print((torch.ones(3, device='xla') + 1).tolist())"
    done = run("-c", code, env=env)
    assert (done.returncode, done.stdout) == (0, "[2.0, 2.0, 2.0]\n"), done.stderr


def test_without_jaxlib(env):
    code = (
        "import sys, importlib.util as u; find = u.find_spec; "
        "u.find_spec = lambda name, *a: None if name == 'jaxlib' else find(name, *a); "
        "import torch_xla; torch_xla.device()"
    )
    done = run("-c", code, env=env)
    assert done.returncode == 1
    assert "pip install 'torch_xla_cc[pod]'" in done.stderr


def check_sums(done, size):
    total = size * (size + 1) / 2
    expected = [f"{rank} of {size}: {[total] * 3}" for rank in range(size)]
    assert sorted(done.stdout.splitlines()) == expected, done.stderr
    assert done.returncode == 0
    assert "Polled an error" not in done.stderr, "a device process ended before the others"


def test_ranks_that_fail_end_with_their_error(env, tmp_path):
    """And are not aborted as they end, by threads that listen for others."""
    script = tmp_path / "late.py"
    script.write_text(LATE)
    strict = {**env, "TORCH_XLA_CC_POD_PROGRAMS": "same"}
    done = run("-m", "torch.distributed.run", "--nproc-per-node=4", script, env=strict)
    assert done.returncode == 1
    assert "CollectiveTimeoutError" in done.stderr
    assert "terminate called" not in done.stderr, done.stderr
    assert "exitcode  : 1" in done.stderr


def test_torchrun(env, tmp_path):
    script = tmp_path / "sums.py"
    script.write_text(SUMS)
    done = run("-m", "torch.distributed.run", "--nproc-per-node=2", script, env=env)
    check_sums(done, 2)


def test_a_script_for_nccl(env, tmp_path):
    """env:// says nothing to torch_xla, which then counts one rank."""
    script = tmp_path / "script.py"
    script.write_text(ENV)
    for backend in ("xla_cc", "cpu:gloo,xla:xla_cc"):
        done = run("-m", "torch.distributed.run", "--nproc-per-node=3", script, backend, env=env)
        said = [line for line in done.stdout.splitlines() if line.startswith("rank")]
        assert sorted(said) == [f"rank {rank} of 3: [6.0, 6.0]" for rank in range(3)], done.stderr
        assert done.returncode == 0


def test_rank_0_raises_while_others_wait(env, tmp_path):
    script = tmp_path / "raises.py"
    script.write_text(ENV)
    began = time.monotonic()
    done = run(
        "-m", "torch.distributed.run", "--nproc-per-node=2", script, "xla_cc", "raises", env=env
    )
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert time.monotonic() - began < 90


def test_a_fork_that_ends_takes_nothing_with_it(env):
    done = run("-c", FORKS, env=env, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[1.0, 2.0, 3.0]\n"), done.stderr


def test_launch(env, tmp_path):
    script = tmp_path / "sums.py"
    script.write_text(SUMS)
    done = run(script, env={**env, "POD_NUM_DEVICES": "2"})
    check_sums(done, 2)


def test_ranks_without_torchrun_are_told_what_is_missing(env):
    code = "import torch_xla; torch_xla.device()"
    done = run("-c", code, env={**env, "RANK": "0", "WORLD_SIZE": "2"})
    assert done.returncode == 1
    assert "TORCH_XLA_CC_POD_ADDRESS" in done.stderr


def test_what_is_shared_has_no_name():
    """So nobody else can open it: no file, and no socket that listens on this machine."""
    (shared,) = pods.run(1, _shared)
    assert shared
    assert all(name.startswith("/memfd:torch_xla_cc (deleted)") for name in shared), shared


def _shared(rank):
    """What this process and its device process both have in memory, and can write."""
    import torch

    kept = torch.ones(1 << 20).to("xla")
    kept.cpu()
    (device,) = pods.device_processes([os.getpid()]).values()
    lines = Path(f"/proc/{device}/maps").read_text().splitlines()
    return [line.split(maxsplit=5)[5] for line in lines if line.split()[1] == "rw-s"]
