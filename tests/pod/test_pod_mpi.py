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
            pytest.skip(f"{command} is not installed: tools/debian_packages.sh python3 test")
    if os.geteuid() == 0 and mpi == "Open MPI":
        flags = [*flags, "--allow-run-as-root"]
    # A port of its own: other tests may run beside it.
    port = str(20000 + os.getpid() % 10000)
    env = environment(cache, TORCH_XLA_CC_MPICXX=mpicxx, MASTER_PORT=port, **more)
    return run([mpirun, *flags, "-n", str(RANKS), sys.executable, str(SCRIPT), what], env)


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("what", ["values", "groups", "numbers"])
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


@pytest.mark.parametrize("mpi", MPIS)
def test_tells_of_a_rank_that_is_late_in_a_new_group(cache, mpi):
    """MPI itself waits for it without a pause."""
    done = by_mpi(cache, "late_in_second", mpi, TORCH_XLA_CC_TIMEOUT_S="4")
    assert done.returncode != 0
    assert "and TORCH_XLA_CC_TIMEOUT_S is 4" in done.stdout, done.stdout + done.stderr


def test_tells_of_a_rank_that_dies(cache):
    done = by_mpi(cache, "dies", TORCH_XLA_CC_TIMEOUT_S="20")
    assert done.returncode != 0
    assert "told: the device process of rank 1 has" in done.stdout, done.stdout + done.stderr


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
    return environment(cache, RANK="1", WORLD_SIZE="2", **{**where, **more})


def test_a_library_that_others_may_write_is_not_loaded(tmp_path):
    (tmp_path / "torch_xla_cc").mkdir()
    (tmp_path / "torch_xla_cc").chmod(0o777)
    done = run([sys.executable, "-c", CLIENT], alone(tmp_path))
    assert "only this user may be able to write it" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (
            {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "7",
             "SLURM_STEP_NUM_NODES": "1"},
            ["1", "4", "1", "4", "127.0.0.1"],
        ),
        (
            {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0",
             "SLURM_STEP_NUM_NODES": "2", "MASTER_ADDR": "a"},
            ["2", "4", "0", "None", "a"],
        ),
        (
            {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"},
            ["0", "2", "0", "2", "127.0.0.1"],
        ),
        ({}, ["None"] * 5),
        ({"RANK": "3", "PMI_RANK": "0", "PMI_SIZE": "2"}, ["3", "None", "None", "None", "None"]),
    ],
)  # fmt: skip
def test_what_mpirun_says_is_what_torchrun_would(cache, said, found):
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    code = f"import os, torch_xla, txcc_pod; print(*[os.environ.get(name) for name in {names}])"
    done = run([sys.executable, "-c", code], environment(cache, **said))
    assert done.stdout.split() == found, done.stderr


CLIENT = "import torch_xla, txcc_pod; txcc_pod.register(); torch_xla.device()"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"TORCH_XLA_CC_MPICXX": "mpicxx.none"}, "there is no 'mpicxx.none'. Install one"),
        ({"TORCH_XLA_CC_MPICXX": "false"}, "false -show failed"),
        ({"TORCH_XLA_CC_MPICXX": "echo"}, "echo -std=c++17"),
        ({"TORCH_XLA_CC_MPI_LIBRARY": "/etc/hosts"}, "/etc/hosts cannot be loaded"),
        ({"XDG_CACHE_HOME": "/proc/none"}, "XDG_CACHE_HOME names another folder"),
        ({"MASTER_ADDR": ""}, "set MASTER_ADDR to the machine of rank 0"),
        (
            {"TORCH_XLA_CC_POD_PROGRAMS": "smae"},
            "TORCH_XLA_CC_POD_PROGRAMS = 'smae' must be 'any' or 'same'",
        ),
        ({CHOICE: "nccl"}, f"{CHOICE} = 'nccl' must be 'gloo', 'memory' or 'mpi'"),
    ],
)
def test_says_what_is_missing(cache, more, said):
    env = {name: value for name, value in alone(cache, **more).items() if value}
    done = run([sys.executable, "-c", CLIENT], env)
    assert done.returncode != 0
    assert said in done.stderr, done.stderr
