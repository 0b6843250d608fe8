"""Ranks of one machine meet in memory that they share."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import one_rank
import pods
import pytest
import several_ranks
import torch

from torch_xla_cc._pod.pod_device import mpi_library

ROOT = Path(__file__).parents[2]
NAMES = ROOT / "pod/memory/names.def"
CHOICE = "TORCH_XLA_CC_POD_COLLECTIVES"


def jaxlib_asks_for():
    jaxlib = pytest.importorskip("jaxlib", reason="the pod needs it")
    return mpi_library._asked(Path(jaxlib.__file__).with_name("libjax_common.so"))


def test_names_are_those_that_jaxlib_asks_for():
    asked = jaxlib_asks_for()
    own = set(re.findall(r"\bMPIX?ABI_\w+", (ROOT / "pod/memory/abi.cc").read_text()))
    head = "".join(NAMES.read_text().splitlines(keepends=True)[:2])
    words = [
        f"{'CONSTANT' if mpi_library._CONSTANT.fullmatch(name) else 'FUNCTION'}({name})"
        for name in sorted(asked - own)
    ]
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) >= 100:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    text = head + "\n".join(lines) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        NAMES.write_text(text)
    assert NAMES.read_text() == text


def how(rank):
    """How collectives go, as each device says it."""
    from torch_xla import runtime

    return {device["collectives"] for device in runtime.global_runtime_device_attributes()}


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({}, "memory"),
        ({CHOICE: "memory"}, "memory"),
        ({CHOICE: "gloo"}, f"gloo: rank 0: {CHOICE} says so"),
        ({"XLA_USE_SPMD": "1"}, "gloo: rank 0: it uses torch_xla's SPMD mode"),
    ],
)
def test_devices_say_how(env, said):
    with pods.ranks(2, **env) as ranks:
        assert ranks.run(pods.joined, how) == [{said}] * 2


def test_of_one_rank_there_are_none():
    (told,) = pods.run(1, one_rank.describes)
    assert all("collectives" not in device for device in told["attributes"])


SCRIPT = """
import os, sys
{}
import torch_xla, txcc_pod
txcc_pod.register()
try:
    torch_xla.device()
except RuntimeError as error:
    sys.exit(str(error))
"""


def outcomes(begins, count=2, **env):
    """Of a rank each, which begin with these lines: what they say at their end."""
    env = {
        **{name: value for name, value in os.environ.items() if name != CHOICE},
        **{"PJRT_DEVICE": "POD", "PYTHONPATH": str(ROOT / "python"), "WORLD_SIZE": str(count)},
        **{"TORCH_XLA_CC_POD_ADDRESS": f"127.0.0.1:{pods_port()}", "TORCH_XLA_CC_POD_TOKEN": "t"},
        **env,
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT.format(begins)],
            env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    return [(one.communicate(timeout=100)[1], one.returncode) for one in started]


def pods_port():
    import txcc_pod

    with txcc_pod.held_port() as held:
        return held.getsockname()[1]


def test_ranks_that_choose_otherwise_are_told():
    found = outcomes(f'if os.environ["RANK"] == "1": os.environ["{CHOICE}"] = "gloo"')
    for said, code in found:
        assert code == 1
        assert f"{CHOICE} is gloo on rank 1 and not set on rank 0. Set the same" in said, said


SMALL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))"


def test_what_cannot_be_shared_is_an_error_where_it_is_asked_for():
    for said, code in outcomes(SMALL, **{CHOICE: "memory"}):
        assert code == 1
        assert f"{CHOICE}=memory: the ranks cannot share memory: rank 0: " in said, said
        assert os.strerror(errno.EFBIG) in said and "Use gloo" in said


def test_what_cannot_be_shared_is_told():
    (first, _), (second, _) = found = outcomes(SMALL)
    assert [code for _, code in found] == [0, 0], found
    assert "the pod's ranks share no memory: rank 0: " in first, first
    assert os.strerror(errno.EFBIG) in first
    assert "share no memory" not in second


def test_what_is_opened_is_what_rank_0_has_made():
    memory = pytest.importorskip("torch_xla_cc._pod.pod_device.memory", reason="it needs jaxlib")
    own = {"machine": memory._machine()}
    made = memory._made(3)
    first = {
        **{"why": "", "machine": own["machine"], "is": memory._version(), "pid": os.getpid()},
        **{"descriptor": made, "name": os.readlink(f"/proc/self/fd/{made}")},
    }
    os.close(memory._opened(first, own, 3))
    other = os.memfd_create("other")
    for changed, size in (
        ({"machine": ["another"]}, 3),
        ({"why": "rank 0: it has none"}, 3),
        ({"is": "another"}, 3),
        ({"descriptor": other}, 3),
        ({"descriptor": other, "name": os.readlink(f"/proc/self/fd/{other}")}, 3),  # not sealed
        ({"descriptor": 10**6}, 3),
        ({}, 4),  # which is larger
    ):
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises((OSError, memory._Cannot)):
            memory._opened({**first, **changed}, own, size)
        assert len(os.listdir("/proc/self/fd")) == before
    os.close(made)
    os.close(other)


def test_all_do_what_rank_0_says():
    memory = pytest.importorskip("torch_xla_cc._pod.pod_device.memory", reason="it needs jaxlib")
    well = {"choice": "", "why": "", "trouble": False}
    lacks = {**well, "why": "rank 1: no", "trouble": True}
    assert memory._agreed([well, well]) == {"memory": True, "why": "", "trouble": False}
    assert memory._agreed([well, lacks]) == {"memory": False, "why": "rank 1: no", "trouble": True}
    asked = [{**one, "choice": "memory"} for one in (well, lacks)]
    assert "cannot share memory: rank 1: no. Use gloo" in memory._agreed(asked)["error"]
    assert "memory on rank 1 and not set on rank 0" in memory._agreed([well, asked[0]])["error"]


NAMES_IN_USE = """
import ctypes, os, sys
names = ctypes.CDLL(sys.argv[1])
names.pod_memory_bytes.restype = ctypes.c_uint64
text, size, out = ctypes.create_string_buffer(1024), ctypes.c_int(7), ctypes.c_int(7)
comm = ctypes.c_size_t(9)

def constant(name):
    return ctypes.c_size_t.in_dll(names, f"MPIABI_{name}")

def why():
    assert names.MPIABI_Error_string(1, text, ctypes.byref(ctypes.c_int())) == 0
    return text.value.decode()

world = constant("COMM_WORLD")
assert names.MPIABI_Comm_rank(world, ctypes.byref(out)) == 1 and out.value == 0
assert "has not begun" in why()
file = os.memfd_create("test")
os.ftruncate(file, names.pod_memory_bytes(1))
assert names.pod_memory_begin(file, 0, 65) == 1 and "at most 64 ranks" in why()
assert names.pod_memory_begin(file, 0, 1) == 0
assert names.pod_memory_begin(file, 0, 1) == 1 and "already" in why()
assert names.MPIABI_Comm_size(world, ctypes.byref(size)) == 0 and size.value == 1
one = (ctypes.c_int * 1)
names.pod_expect(one(0), one(1), one(5), 1)
assert names.MPIABI_Comm_split(world, 5, 0, ctypes.byref(comm)) == 0
x = (ctypes.c_float * 3)(1, 2, 3)
reduced = names.MPIABI_Allreduce(x, x, 3, constant("FLOAT"), constant("SUM"), comm)
assert reduced == 0 and list(x) == [1, 2, 3]
y = (ctypes.c_float * 3)()
floats = constant("FLOAT")
assert names.MPIABI_Sendrecv(x, 3, floats, 0, 0, y, 3, floats, 0, 0, comm, None) == 0
assert list(y) == [1, 2, 3]
assert names.MPIABI_Abort() == 1
# XLA goes on after this one, and asks for more. What it says is why the first failed.
assert names.MPIABI_Comm_split(world, 6, 0, ctypes.byref(comm)) == 1 and comm.value == 0
assert names.MPIABI_Comm_size(comm, ctypes.byref(size)) == 1 and size.value == 1
assert names.MPIABI_Comm_rank(comm, ctypes.byref(out)) == 1 and out.value == 0
assert names.MPIABI_Allreduce(x, x, 3, constant("FLOAT"), constant("SUM"), comm) == 1
assert "XLA wants a group whose first device is 6" in why(), why()
"""
BAD = {
    "negative": ('x, x, -1, constant("FLOAT"), constant("SUM")', "of more elements than an int"),
    "type": ('x, x, 3, constant("AINT"), constant("SUM")', "a type of MPI that is not known"),
    "reduction": ('x, x, 3, constant("C_COMPLEX"), constant("MAX")', "no reduction, maximum of c"),
}


def in_a_process(code):
    done = subprocess.run(
        [sys.executable, "-c", code, str(mpi_library.OF_MEMORY)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_names_as_xla_calls_them():
    in_a_process(NAMES_IN_USE)


@pytest.mark.parametrize("what", BAD)
def test_bad_arguments_are_errors(what):
    arguments, said = BAD[what]
    head, _, _ = NAMES_IN_USE.partition("# XLA goes on")
    call = f"assert names.MPIABI_Allreduce({arguments}, comm) == 1"
    in_a_process(f"{head}{call}\nassert {said!r} in why(), why()")


@pytest.mark.parametrize("by", ["memory", "gloo"])
def test_both_are_right(by):
    """Of types that XLA gives to MPI, and of those that it does not."""
    with pods.ranks(3, **{CHOICE: by}) as ranks:
        for dtype in ("float32", "bfloat16", "float16", "uint8"):
            every = ranks.run(pods.joined, several_ranks.in_one_graph, dtype)
            for rank, (made, _) in enumerate(every):
                for name, wanted in several_ranks.expected(rank, 3, dtype).items():
                    assert torch.equal(made[name], wanted), (dtype, rank, name)


def sums(rank, sizes):
    """Each of another size, in place of the one before: first and last numbers."""
    import torch

    from torch_xla_cc import xla_model as xm

    found = []
    for size in sizes:
        x = torch.arange(size, dtype=torch.float64).to("xla") + rank
        y = xm.all_reduce("sum", x).cpu()
        found.append((float(y[0]), float(y[-1]), float(y.sum())))
    return found


def test_sizes_about_a_window():
    sizes = [1, 7, (1 << 18) - 1, 1 << 18, (1 << 18) + 1, 3 * (1 << 18) + 5]
    wanted = [
        (3.0, 3.0 * (size - 1) + 3.0, 3.0 * size * (size - 1) / 2 + 3.0 * size) for size in sizes
    ]
    assert pods.run(3, sums, sizes) == [wanted] * 3


def test_small_types_of_spmd_are_refused():
    from torch_xla_cc._pod.pod_device import mpi_types
    from torch_xla_cc._pod.pod_device.errors import Refused

    line = "  %g = bf16[8,2]{1,0} all-gather(%x), replica_groups={}, dimensions={0}"
    with pytest.raises(Refused, match=f"all-gather of bf16 .* Set {CHOICE}=gloo"):
        mpi_types.check(line)
    mpi_types.check(line.replace("bf16", "f32"))
    mpi_types.check(line.replace("all-gather", "all-to-all"))


def shared(rank):
    """Files that the device process maps, which others can write as well."""
    pid = pods.device_processes([os.getpid()])[os.getpid()]
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[5] for line in maps if " rw-s " in line}


def test_what_is_shared_has_no_name():
    with pods.ranks(2) as ranks:
        for names in ranks.run(pods.joined, shared):
            ours = [name for name in names if name.startswith("/memfd:torch_xla_cc pod ")]
            assert len(ours) == 1 and ours[0].endswith(" (deleted)"), names
