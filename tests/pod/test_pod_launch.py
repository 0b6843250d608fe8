"""torch_xla_cc.launch(pod=True): ranks that are processes, from within a script."""

import ast
import os
import subprocess
import sys
import time
from pathlib import Path

import pods
import pytest
import torch

PYTHON = Path(__file__).parents[2] / "python"

SCRIPT = """
import os, sys, time
import torch
import torch_xla
import torch_xla_cc
from torch_xla_cc import xla_model as xm

class Odd(Exception):
    def __init__(self, a, b):
        super().__init__(a)

def main(rank, what):
    x = torch.full((3,), rank + 1.0, device=torch_xla.device())
    total = xm.all_reduce(xm.REDUCE_SUM, x).cpu()
    if what == "raises" and rank == 1:
        raise KeyError("of rank 1")
    if what == "unpicklable" and rank == 1:
        raise Odd("what", "is lost")
    if what == "dies" and rank == 1:
        launch = os.getppid()
        if not os.fork():  # a child that holds what this one has open, until launch has ended
            for _ in range(1000):
                time.sleep(0.1)
                if " Z " in open(f"/proc/{launch}/stat").read():
                    break
            os._exit(0)
        os.kill(os.getpid(), 9)
    if what == "waits":
        print("in it", flush=True)
        time.sleep(0.1 if rank else 1000)
    if what == "exits" and rank == 1:
        sys.exit(0)
    if what == "leaves" and rank == 1:
        return None
    if what == "tensors":
        return rank and sys
    if what == "a tensor":
        return total
    if what == "collectives":
        return torch_xla.runtime.global_runtime_device_attributes()[rank]["collectives"]
    if what == "dist":
        import torch.distributed as dist
        import torch_xla_cc.distributed
        dist.init_process_group("xla_cc")
        dist.all_reduce(x)
        return x.tolist()
    if what != "fine":
        xm.all_reduce(xm.REDUCE_SUM, x).cpu() if what != "exits" else None
    return rank, os.environ["WORLD_SIZE"], total.tolist()

if __name__ == "__main__":
    try:
        print(torch_xla_cc.launch(main, (sys.argv[1],), nprocs=int(sys.argv[2]), pod=True))
    except Exception as error:
        print(type(error).__name__, error, *getattr(error, "__notes__", [])[:1])
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("launch") / "script.py"
    path.write_text(SCRIPT)
    return path


def run(script, *words, **more):
    env = {**os.environ, "PYTHONPATH": str(PYTHON), "OMP_NUM_THREADS": "1", **more}
    env.pop("PJRT_DEVICE", None)
    done = subprocess.run(
        [sys.executable, str(script), *map(str, words)],
        env=env, capture_output=True, text=True, timeout=150,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_results_by_rank(script):
    out, stderr = run(script, "fine", 3)
    assert out == str([(rank, "3", [6.0] * 3) for rank in range(3)])
    assert "Polled an error" not in stderr, "a device process ended before the others"


def test_torch_distributed_finds_its_world(script):
    out, _ = run(script, "dist", 2)
    assert out.splitlines()[-1] == str([[3.0] * 3] * 2)  # gloo says that it is connected


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        ({}, "memory"),
        ({"TORCH_XLA_CC_POD_COLLECTIVES": "gloo"}, "gloo: rank 0: "),
        ({"TORCH_XLA_CC_POD_COLLECTIVES": "mpi"}, "memory"),  # that is for what mpirun starts
    ],
)
def test_ranks_meet_as_those_of_torchrun(script, choice, found):
    out, _ = run(script, "collectives", 2, **choice)
    one, other = ast.literal_eval(out.splitlines()[-1])
    assert one == other
    assert one.startswith(found)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("raises", "KeyError 'of rank 1' raised by rank 1 of 2:"),
        ("unpicklable", "RankFailed launch: rank 1 failed:\nTraceback"),
        ("dies", "RankFailed launch: rank 1 was killed by signal 9 (Killed)"),
        ("exits", "[(0, '2', [3.0, 3.0, 3.0]), None]"),
        ("tensors", "RankFailed launch: what rank 1 returned cannot be pickled: "),
    ],
)
def test_one_rank_ends_otherwise(script, what, said):
    mark = f"{what} {time.monotonic()}"
    began = time.monotonic()
    out, _ = run(script, what, 2, MARK=mark)
    assert out.startswith(said), out
    assert time.monotonic() - began < 90.0  # not as long as a child that a rank has forked
    assert not pods.marked(mark)


def test_nothing_is_left_of_a_launch_that_is_killed(script):
    mark = f"launch {time.monotonic()}"
    env = {**os.environ, "PYTHONPATH": str(PYTHON), "OMP_NUM_THREADS": "1", "MARK": mark}
    env.pop("PJRT_DEVICE", None)
    command = [sys.executable, str(script), "waits", "2"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as launch:
        try:
            assert [launch.stdout.readline() for _ in range(2)] == ["in it\n"] * 2
            assert len(pods.marked(mark)) >= 5  # two ranks and two device processes
        finally:
            launch.kill()
    until = time.monotonic() + 20
    while left := pods.alive(pods.marked(mark)):
        assert time.monotonic() < until, left
        time.sleep(0.1)


def test_tensors_are_returned(script):
    out, _ = run(script, "a tensor", 2)
    assert out == str([torch.full((3,), 3.0)] * 2)


def test_who_has_left_is_named(script):
    out, _ = run(script, "leaves", 3, TORCH_XLA_CC_TIMEOUT_S="60")
    assert out.startswith("RuntimeError"), out
    assert "(ranks that had ended before: [1])" in out or "rank 1 has ended, and others" in out


def test_what_is_asked_for_is_checked():
    import torch_xla_cc

    for nprocs in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match=f"launch: nprocs = {nprocs}, .*from 1"):
            torch_xla_cc.launch(print, (), nprocs, pod=True)
