"""Compiled functions whose sizes change: right, or refused with what to do."""

import compiled_sizes
import processes
import pytest
import torch
import worlds

RUN = {"threads": worlds.run, "processes": processes.run}


def results(where, name, how):
    return RUN[where](2, compiled_sizes.both, name, how, timeout_s=120)


def check(found):
    for ours, wanted in found:
        assert wanted is not None, ours
        for mine, right in zip(ours, wanted, strict=True):
            assert all(torch.equal(x, y) for x, y in zip(mine, right, strict=True))


@pytest.mark.parametrize("name", ["several", "in_place", "gradient"])
@pytest.mark.parametrize("how", ["changes", "torch_xla"])
@pytest.mark.parametrize("where", RUN)
def test_sizes_that_change(where, name, how):
    check(results(where, name, how))


@pytest.mark.parametrize("how", ["marked", "dynamic"])
def test_free_sizes_between_threads(how):
    check(results("threads", "several", how))


@pytest.mark.parametrize(
    ("where", "name"), [("threads", "all_to_all"), ("processes", "all_reduce")]
)
def test_free_sizes_of_what_goes_through_the_host_are_refused(where, name):
    for error, _ in results(where, name, "dynamic"):
        assert "dynamic=False" in error
