"""A pod by MPI: mpirun starts the ranks, and device processes meet by it, and not by gloo."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RANKS = 3
PYTHON = Path(__file__).parents[2] / "python"
SCRIPT = Path(__file__).with_name("by_mpi.py")
CHOICE = "TORCH_XLA_CC_POD_COLLECTIVES"
# The commands by which Debian tells one MPI from the other.
MPIS = {
    "Open MPI": ("mpirun.openmpi", "mpicxx.openmpi", ["--oversubscribe"]),
    "MPICH": ("mpirun.mpich", "mpicxx.mpich", []),
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Where the wrapped libraries lie: they are compiled here, and not found."""
    return tmp_path_factory.mktemp("cache")


def environment(cache, **more):
    gone = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    kept = {name: value for name, value in os.environ.items() if name not in gone}
    own = {"PJRT_DEVICE": "POD", CHOICE: "mpi", "PYTHONPATH": str(PYTHON)}
    return {**kept, **own, "XDG_CACHE_HOME": str(cache), "OMP_NUM_THREADS": "1", **more}


def run(command, env):
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=120, check=False
    )


def by_mpi(cache, what, mpi="Open MPI", **more):
    mpirun, mpicxx, flags = MPIS[mpi]
    for command in (mpirun, mpicxx):
        if shutil.which(command) is None:
            pytest.skip(f"{command} is not installed: tools/debian_packages.sh python check")
    if os.geteuid() == 0 and mpi == "Open MPI":
        flags = [*flags, "--allow-run-as-root"]
    # A port of its own: other tests may run beside it.
    port = str(20000 + os.getpid() % 10000)
    env = environment(cache, TORCH_XLA_CC_MPICXX=mpicxx, MASTER_PORT=port, **more)
    return run([mpirun, *flags, "-n", str(RANKS), sys.executable, str(SCRIPT), what], env)


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("what", ["values", "groups"])
def test_is_right(cache, mpi, what):
    done = by_mpi(cache, what, mpi)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ended well") == RANKS, done.stdout


def test_refuses_what_xla_cannot_count(cache):
    done = by_mpi(cache, "refused")
    assert done.returncode == 0, done.stderr


def test_tells_of_a_rank_that_is_late(cache):
    """Who waits in MPI uses no processor, so it can be told from who computes."""
    done = by_mpi(cache, "late", TORCH_XLA_CC_TIMEOUT_S="4")
    assert done.returncode != 0
    assert "and TORCH_XLA_CC_TIMEOUT_S is 4" in done.stdout, done.stdout + done.stderr
    assert "rank 1 has begun 1 collectives, and has ended them" in done.stdout, done.stdout
    assert "MPI_FINALIZE" not in done.stderr, done.stderr


def test_tells_of_a_rank_that_dies(cache):
    done = by_mpi(cache, "dies", TORCH_XLA_CC_TIMEOUT_S="20")
    assert done.returncode != 0
    assert "told: the device process of rank 1 has ended" in done.stdout, done.stdout + done.stderr


def fails(env, *command):
    done = run([*command, str(SCRIPT), "values"], env)
    assert done.returncode != 0
    return done.stderr


def test_torchrun_is_no_mpirun(cache):
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    env = environment(cache, TORCH_XLA_CC_MPICXX="mpicxx.openmpi")
    said = fails(env, *torchrun, "--nproc-per-node=2")
    assert "MPI counts this process as rank 0 of 1, and its environment says rank 1 of 2" in said
    assert "mpirun" in said


def alone(cache, **more):
    """The environment of one rank of two, by hand: the other never comes."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    return environment(cache, RANK="1", WORLD_SIZE="2", **where, **more)


CLIENT = "import torch_xla, txcc_pod; txcc_pod.register(); torch_xla.device()"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"TORCH_XLA_CC_MPICXX": "mpicxx.none"}, "there is no 'mpicxx.none'. Install one"),
        ({"TORCH_XLA_CC_MPICXX": "false"}, "false -show failed"),
        ({"TORCH_XLA_CC_MPICXX": "echo"}, "echo -std=c++17"),
        ({CHOICE: "nccl"}, f"{CHOICE} = 'nccl' must be 'gloo' or 'mpi'"),
    ],
)
def test_says_what_is_missing(cache, more, said):
    done = run([sys.executable, "-c", CLIENT], alone(cache, **more))
    assert done.returncode != 0
    assert said in done.stderr, done.stderr
