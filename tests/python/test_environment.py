"""What a launch does to the environment, which C code of other threads may read meanwhile."""

import os
import sys

import forks

import torch_xla_cc
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
