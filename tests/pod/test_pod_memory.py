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
        assert f"{CHOICE} is 'gloo' on rank 1 and '' on rank 0. Set the same" in said, said


def test_what_cannot_be_shared_is_told():
    """A file that may not be so large, where memory is what is asked for."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))"
    for said, code in outcomes(limit, **{CHOICE: "memory"}):
        assert code == 1
        assert f"{CHOICE}=memory: the ranks cannot share memory: rank 0: " in said, said
        assert os.strerror(errno.EFBIG) in said and "Use gloo" in said


@pytest.mark.parametrize("by", ["memory", "gloo"])
def test_both_are_right(by):
    """Of types that XLA gives to MPI, and of those that it does not."""
    with pods.ranks(3, **{CHOICE: by}) as ranks:
        for dtype in ("float32", "bfloat16", "float16", "uint8"):
            for made, _ in ranks.run(pods.joined, several_ranks.in_one_graph, dtype):
                for name, wanted in several_ranks.expected(0, 3, dtype).items():
                    if name in ("all_reduce", "all_gather"):
                        assert made[name].tolist() == wanted.tolist(), (dtype, name)


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
