"""torch.compile of functions with collectives: right on each call, and compiled once."""

import compiled
import processes
import pytest
import torch
import worlds

RUN = {"threads": worlds.run, "processes": processes.run}
NAMES = [function.__name__ for function in compiled.FUNCTIONS]


def check(ours, wanted):
    assert len(ours) == len(wanted)
    for mine, right in zip(ours, wanted, strict=True):
        assert len(mine) == len(right)
        for x, y in zip(mine, right, strict=True):
            assert x.dtype == y.dtype
            assert torch.equal(x, y)


@pytest.mark.parametrize("backend", ["openxla", "aot_eager", "eager"])
@pytest.mark.parametrize("where", RUN)
@pytest.mark.parametrize("world", [2, 4])
def test_each_call_is_right(world, where, backend):
    for by_name in RUN[where](world, compiled.all_of_them, NAMES, backend, timeout_s=120):
        for ours, wanted in by_name:
            check(ours, wanted)
