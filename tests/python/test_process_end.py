"""The end of a process in which ranks, or threads of this library, are still at work."""

import os
import subprocess
import sys
import textwrap

import pytest

ENV = {**os.environ, "PJRT_DEVICE": "CPU"}


@pytest.mark.parametrize("ends", ["sys.exit(7)", "raise SystemExit(7)"])
def test_the_process_ends_while_a_launch_runs(ends, tmp_path):
    """Of a new interpreter: that of the tests' server ends without its own end."""
    path = tmp_path / "program.py"
    path.write_text(
        textwrap.dedent(f"""
        import sys, threading, time
        import torch, torch_xla, torch_xla_cc, torch.distributed as dist, torch_xla_cc.distributed
        going = threading.Event()
        def fn(rank):
            dist.init_process_group("xla_cc", init_method="xla://")
            while True:
                x = torch.ones(3, device=torch_xla.device())
                dist.all_reduce(x)
                assert x.tolist() == [3.0] * 3
                going.set()
        def run():
            torch_xla_cc.launch(fn, nprocs=3, timeout_s=60)
        threading.Thread(target=run, daemon=True).start()
        assert going.wait(60)
        {ends}
        """)
    )
    done = subprocess.run(
        [sys.executable, str(path)], env=ENV, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 7, (done.returncode, done.stderr[-3000:])


@pytest.mark.parametrize("waits", ["dist.irecv(x, 1)", "dist.all_reduce(x, async_op=True)"])
def test_the_process_ends_while_it_waits_for_a_peer(waits, tmp_path):
    """Rank 1 ends when all that libraries destroy at the end of rank 0's process is destroyed.

    The last that a process does is what it registered first: rank 0 closes the file of the number
    that is its status, which rank 1 waits for, and sleeps as many seconds as that says.
    """
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    path = tmp_path / "program.py"
    path.write_text(
        textwrap.dedent(f"""
        import ctypes, os, sys, time
        rank, store, fifo = int(sys.argv[1]), *sys.argv[2:]
        if rank == 0:
            libc = ctypes.CDLL(None)
            libc.on_exit(libc.sleep, None)
            libc.on_exit(libc.close, None)
            file = os.open(fifo, os.O_WRONLY)
            os.dup2(file, 20, inheritable=False)
            os.close(file)
        else:
            file = os.open(fifo, os.O_RDONLY)
        import torch, torch_xla, torch.distributed as dist, torch_xla_cc.distributed
        dist.init_process_group("xla_cc", init_method=store, rank=rank, world_size=2)
        x = torch.ones(3, device=torch_xla.device())
        dist.all_reduce(x)
        if rank == 0:
            work = {waits}  # it never comes
            time.sleep(0.5)
            sys.exit(20)
        os.read(file, 1)
        """)
    )
    ranks = [
        subprocess.Popen(
            [sys.executable, str(path), str(rank), f"file://{tmp_path}/store", str(fifo)],
            env=ENV,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        ended = [(rank.communicate(timeout=90)[1], rank.returncode) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [status for _, status in ended] == [20, 0], ended
