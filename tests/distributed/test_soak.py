"""A short soak; soak.py by itself runs the long one."""

import effort
import pods
import processes
import pytest
import soak
import worlds

RUN = {"threads": worlds.run, "processes": processes.run, "pod": pods.run}


@pytest.mark.parametrize("where", RUN)
def test_mixed_calls(where):
    for memory in RUN[where](
        4, soak.soak, 300 * effort.TIMES, effort.SEED, timeout_s=150 * effort.TIMES
    ):
        assert len(memory) > 9
