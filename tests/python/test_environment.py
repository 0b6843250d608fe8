"""What a launch does to the environment, which C code of other threads may read meanwhile."""

import os
import sys

import forks
import torch
import torch_xla

import torch_xla_cc
from torch_xla_cc import xla_model as xm
from torch_xla_cc._threads import cpu_devices


@forks.alone
def test_what_is_there_is_not_set_again():
    os.environ["PJRT_DEVICE"] = "CPU"
    os.environ.update(cpu_devices._variables(2))
    written = []

    def note(event, args):
        if event in ("os.putenv", "os.unsetenv"):
            written.append((event, args[0]))

    sys.addaudithook(note)
    for _ in range(2):
        assert torch_xla_cc.launch(int, nprocs=2) == [0, 1]
    assert not written
    del os.environ["XLA_TRIM_GRAPH_SIZE"]
    assert torch_xla_cc.launch(int, nprocs=2) == [0, 1]
    assert written == [
        ("os.unsetenv", b"XLA_TRIM_GRAPH_SIZE"),
        ("os.putenv", b"XLA_TRIM_GRAPH_SIZE"),
        ("os.unsetenv", b"XLA_TRIM_GRAPH_SIZE"),
    ]


def _programs(rank):
    for size in range(1, 21):
        x = torch.full((size,), 2.0, device=torch_xla.device())
        assert xm.all_reduce("sum", x).tolist() == [4.0] * size
    return torch_xla._XLAC._xla_get_num_cached_compilation_graph()


@forks.alone
def test_programs_are_not_kept_for_ever():
    """Of very many XLA:CPU ends the process: docs/ranks.md."""
    os.environ["PJRT_DEVICE"] = "CPU"
    os.environ["XLA_COMPILATION_CACHE_SIZE"] = "7"
    assert torch_xla_cc.launch(_programs, nprocs=2) == [7, 7]
    assert os.environ.pop("XLA_COMPILATION_CACHE_SIZE") == "7"
    assert cpu_devices._variables(2)["XLA_COMPILATION_CACHE_SIZE"] == "512"
