"""Calls are events of PyTorch's profiler."""

import processes
import profiled
import pytest
import worlds

ONE = [[2, 3]]


@pytest.mark.parametrize("run", [worlds.run, processes.run], ids=["threads", "processes"])
def test_events(run):
    assert run(2, profiled.events)[0] == [
        ("xla_cc:all_reduce", ONE, True),
        ("xla_cc:all_gather", ONE, True),
        ("xla_cc:reduce_scatter", ONE * 2, True),
        ("xla_cc:recv", ONE, True),
        ("xla_cc:send", ONE, True),
        ("xla_cc:barrier", [], True),
    ]
