"""What stays in the graph, functional collectives, and refusals."""

import graphs
import processes
import pytest
import torch
import worlds

RUN = {"threads": worlds.run, "processes": processes.run}


def test_what_stays_in_the_graph():
    for found, x in worlds.run(2, graphs.pending):
        assert found == [False, True, False, True]
        assert x == [8.0] * 4


@pytest.mark.parametrize("members", [[0, 1, 2, 3], [1, 3], [2]])
@pytest.mark.parametrize("where", RUN)
def test_functional_collectives(where, members):
    for ours, wanted in RUN[where](4, graphs.both, members):
        assert len(ours) == len(wanted)
        for x, y in zip(ours, wanted, strict=True):
            assert torch.equal(x, y)


@pytest.mark.parametrize("where", RUN)
def test_refusals(where):
    for found, x in RUN[where](2, graphs.refused):
        assert set(found) == {"D1", "D2", "D3", "D4", "D5", "D5 tag", "D6", "R1", "R3"}
        for label, message in found.items():
            assert f"({label.split()[0]})" in message, message
        assert x == [2.0, 2.0]
