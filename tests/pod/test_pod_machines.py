"""Several machines: two network namespaces of this one, and what happens when one goes away.

Only root may make them; elsewhere these tests are left out.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PYTHON = Path(__file__).parents[2] / "python"
TIMEOUT_S = 20
SLACK_S = 5

SCRIPT = """
import sys, time
import torch
import torch.distributed as dist
import torch_xla
import torch_xla_cc.distributed
import txcc_pod
from torch_xla_cc import xla_model as xm

txcc_pod.register()
dist.init_process_group("xla_cc")
rank, size = dist.get_rank(), dist.get_world_size()

def step(i):
    x = torch.arange(7.0, device="xla") * (rank + 1) + i
    x = xm.all_reduce("sum", x)
    assert x.tolist() == [n * size * (size + 1) / 2 + i * size for n in range(7)], x
    return x

for i in range(5):
    step(i)
print(f"summed {rank} {size}", flush=True)  # in one piece: torchrun runs it by python -u
kept = torch.full((3,), 7.0, device="xla")
torch_xla.sync()
if "cut" in sys.argv:
    sys.stdin.readline()
    began = time.monotonic()
    try:
        for i in range(10**9):
            step(i)
    except RuntimeError as error:
        print(f"told {time.monotonic() - began:.0f} {' '.join(str(error).split())}", flush=True)
    print(f"kept {kept.tolist()}", flush=True)
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20)


def may_make_namespaces():
    name = f"try{os.getpid()}"
    try:
        ip("netns", "add", name)
        ip("netns", "delete", name)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


pytestmark = pytest.mark.skipif(
    not may_make_namespaces(), reason="only root, with `ip`, makes network namespaces"
)


@pytest.fixture
def machines(request):
    """The names of two, and the address of the first, by IPv4 or as the test's parameter says."""
    addresses = ["fd77::1/64", "fd77::2/64"]
    if getattr(request, "param", "IPv4") == "IPv4":
        addresses = ["10.77.0.1/24", "10.77.0.2/24"]
    names = [f"pod{os.getpid()}{end}" for end in "ab"]
    with contextlib.ExitStack() as stack:
        for name in names:
            ip("netns", "add", name)
            stack.callback(ip, "netns", "delete", name)
        ip("link", "add", "v0", "netns", names[0], "type", "veth",
           "peer", "name", "v0", "netns", names[1])  # fmt: skip
        for name, address in zip(names, addresses, strict=True):
            own = ["nodad"] if ":" in address else []  # else it is not there for some seconds
            ip("-n", name, "address", "add", address, "dev", "v0", *own)
            for link in ("lo", "v0"):
                ip("-n", name, "link", "set", link, "up")
        yield names, addresses[0].partition("/")[0]


def start(machine, command, **env):
    return subprocess.Popen(
        ["ip", "netns", "exec", machine, sys.executable, *map(str, command)],
        env={**os.environ, "PYTHONPATH": str(PYTHON), "PJRT_DEVICE": "POD", **env,
             # (Of torch's own gloo: it would take the address of the name of both, 127.0.0.1.)
             "GLOO_SOCKET_IFNAME": "v0",
             "OMP_NUM_THREADS": "1", "TORCH_XLA_CC_TIMEOUT_S": str(TIMEOUT_S)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip


@contextlib.contextmanager
def ended(processes):
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize("machines", ["IPv4", "IPv6"], indirect=True)
def test_torchrun_on_two_machines(machines, script):
    names, address = machines
    launchers = [
        start(name, ["-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2",
                     f"--node-rank={node}", f"--master-addr={address}", "--master-port=29511",
                     script])
        for node, name in enumerate(names)
    ]  # fmt: skip
    with ended(launchers):
        said = [launcher.communicate(timeout=150)[0] for launcher in launchers]
    assert [launcher.returncode for launcher in launchers] == [0, 0], said
    for node, text in enumerate(said):
        for rank in (2 * node, 2 * node + 1):
            assert f"summed {rank} 4" in text


def test_a_network_that_is_cut(machines, script):
    names, address = machines
    token = secrets.token_hex(16)
    ranks = [
        start(name, [script, "cut"], RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0",
              LOCAL_WORLD_SIZE="1", MASTER_ADDR=address, MASTER_PORT="29512",
              TORCH_XLA_CC_POD_ADDRESS=f"{address}:29513", TORCH_XLA_CC_POD_TOKEN=token)
        for rank, name in enumerate(names)
    ]  # fmt: skip
    with ended(ranks):
        for rank in ranks:
            while not (line := rank.stdout.readline()).startswith("summed"):
                assert line, "it has ended"
        ip("-n", names[1], "link", "set", "v0", "down")
        for rank in ranks:
            rank.stdin.write("\n")
            rank.stdin.flush()
        said = [rank.communicate(timeout=150)[0] for rank in ranks]
    for number, text in enumerate(said):
        _, told, error = text.partition("told ")
        assert told, text
        assert int(error.split()[0]) <= TIMEOUT_S + SLACK_S, text
        assert f"rank {1 - number}" in error, text
        assert "kept [7.0, 7.0, 7.0]" in text
