"""What stays in the graph, functional collectives, and refusals."""

import as_tpu
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


def test_a_setting_has_calls_stay_in_the_graph_of_a_tpu():
    assert as_tpu.run(2, graphs.stays_by_setting) == [([True, False], [4.0] * 3)] * 2


def test_many_calls_stay_in_the_graph():
    assert worlds.run(2, graphs.many_in_steps) == [(False, 1.0)] * 2


@pytest.mark.parametrize("members", [[0, 1, 2, 3], [1, 3], [2]])
@pytest.mark.parametrize("where", RUN)
def test_functional_collectives(where, members):
    for ours, wanted in RUN[where](4, graphs.both, members):
        assert len(ours) == len(wanted)
        for x, y in zip(ours, wanted, strict=True):
            assert torch.equal(x, y)


def test_split_sizes_on_tpu():
    for beside, how, inside, through, wanted in as_tpu.run(4, graphs.split_in_graph):
        assert (how, through) == ("host", "graph")
        assert torch.equal(beside, wanted) and torch.equal(inside, wanted)


@pytest.mark.parametrize("where", RUN)
def test_the_host_can_be_forbidden(where):
    for found, counted, x in RUN[where](2, graphs.forbidden):
        for name in ("send", "recv", *(["all_reduce"] if where == "processes" else [])):
            assert f"{name}(float32[2]" in found[name]
            assert "goes through the memory of the host" in found[name]
        assert where == "processes" or found["all_reduce"] == ""
        assert counted
        assert x == [4.0 if where == "threads" else 2.0] * 2


@pytest.mark.parametrize("where", RUN)
def test_refusals(where):
    for found, x in RUN[where](2, graphs.refused):
        assert set(found) == {"D1", "D2", "D3", "D4", "D5", "D5 tag", "D6", "R1", "R3"}
        for label, message in found.items():
            assert f"({label.split()[0]})" in message, message
        assert x == [2.0, 2.0]
