"""Several ranks of the pod: one world of XLA devices."""

import ordered
import pods
import pytest
import several_ranks
import torch

BY_GLOO = {"TORCH_XLA_CC_POD_COLLECTIVES": "gloo"}


@pytest.mark.parametrize("dtype", ["float32", "int32", "bfloat16", "float64"])
@pytest.mark.parametrize("size", [2, 4])
def test_stock_collectives_and_ours_in_one_graph(size, dtype):
    for rank, (results, kept) in enumerate(pods.run(size, several_ranks.in_one_graph, dtype)):
        for name, expected in several_ranks.expected(rank, size, dtype).items():
            assert torch.equal(results[name], expected), (rank, name)
        assert kept == list(several_ranks._INSTRUCTIONS)


# (torch_xla itself makes NaNs of float16 quiet, on their way to the device.)
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "float8_e4m3fn"])
def test_bits_of_nans_that_travel(dtype):
    size = 2
    for rank, bits in enumerate(pods.run(size, several_ranks.of_nans, dtype)):
        every = [several_ranks.nans(r, dtype) for r in range(size)]
        assert bits["all_gather"].equal(torch.cat(every)), rank
        assert bits["collective_permute"].equal(every[1 - rank]), rank
        assert bits["all_to_all"].equal(torch.cat([x.chunk(size)[rank] for x in every])), rank


CONSTANTS = {
    "all_reduce": lambda rank: [6.0] * 4,
    "all_gather": lambda rank: [float(r) for r in range(4) for _ in range(4)],
    "reduce_scatter": lambda rank: [6.0],
    "all_to_all": lambda rank: [0.0, 1.0, 2.0, 3.0],
    "collective_permute": lambda rank: [float((rank - 1) % 4)] * 4,
}


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("whose", ["ours", "stock"])
def test_constants_that_differ(whose, name):
    results = pods.run(4, several_ranks.of_constants, whose, name)
    assert results == [CONSTANTS[name](rank) for rank in range(4)]


def test_groups():
    groups = ([[0, 1], [2, 3]], [[0, 3], [1, 2]])
    results = pods.run(4, several_ranks.in_groups, groups)
    assert results == [(3.0, 10.0), (3.0, 10.0), (7.0, 10.0), (7.0, 10.0)]


@pytest.mark.parametrize("name", ["all_gather", "all_reduce", "collective_permute", "all_to_all"])
def test_some_ranks_run_what_others_do_not(name):
    """In a pod that is new: XLA:CPU connects ranks in the first collective of their set."""
    with pods.ranks(4) as ranks:
        results = ranks.run(pods.joined, several_ranks.of_some, name)
    expected = {
        "all_gather": lambda rank: [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0],
        "all_reduce": lambda rank: [6.0] * 3,
        "collective_permute": lambda rank: [1.0 + (rank + 2) % 3] * 3,
        "all_to_all": lambda rank: [1.0, 2.0, 3.0],
    }[name]
    assert results == [(expected(rank), 10.0) for rank in range(3)] + [([], 10.0)]


def test_steps_run_ahead():
    assert pods.run(2, several_ranks.steps, 200) == [1.0, 1.0]


def test_a_late_rank_is_waited_for():
    late_s = 4.0
    for rank, result in enumerate(pods.run(2, several_ranks.reads_while_others_are_late, late_s)):
        value, read, total, took, size = result
        assert value == [2.0 * i for i in range(8)]
        assert total == size
        assert took >= late_s - 0.5
        if rank == 0:
            assert read < late_s / 2, "a tensor that is there waited for the collective"


def test_a_reduce_scatter_waits_for_a_late_rank():
    late_s = 32.0  # in its own gloo gives up after 30 s
    with pods.ranks(2, **BY_GLOO) as ranks:
        ((value, took), _) = ranks.run(
            pods.joined, several_ranks.scatters_while_others_are_late, late_s
        )
    assert value == 5.0
    assert took >= late_s - 0.5


def test_gloo_does_not_give_up_on_a_late_rank():
    """Neither in the first meeting of a group, nor in torch_xla's own reduce_scatter."""
    late_s = 32.0
    with pods.ranks(3, **BY_GLOO) as ranks:
        found = ranks.run(pods.joined, several_ranks.meets_first_while_one_is_late, late_s)
    assert found == [[6.0], [5.0] * 3 + [6.0], [5.0] * 3 + [6.0]]


@pytest.mark.parametrize("by", ["memory", "gloo"])
def test_order_in_programs_that_differ(by):
    with pods.ranks(4, TORCH_XLA_CC_POD_COLLECTIVES=by) as ranks:
        every = ranks.run(pods.joined, ordered.differs_by_a_constant)
    for found in every:
        assert found == [y for i in range(4) for y in (4.0 * i, 4.0 * i, 1.0 * i, 1.0 * i)]


@pytest.mark.parametrize("way", ["minus", "drop", "read", "local"])
def test_collectives_run_in_the_order_of_the_calls(way):
    """And not in that in which a rank uses what they give."""
    sums = [[sum(i + rank + step for rank in range(3)) for i in range(4)] for step in range(3)]
    if way == "drop":
        wanted = [a for step in sums for a in step]
    else:
        wanted = [a - 10 * b for step in sums for a, b in zip(step, sums[0], strict=True)]
    for found in pods.run(3, ordered.uses_results_in_an_order_of_its_own, way):
        if way == "read":
            assert found[:2] == [0, 0]
            found = [y for i in range(3) for y in found[6 * i + 2 : 6 * i + 6]]
        elif way == "local" and len(found) > 12:
            found = [y for i in range(3) for y in found[5 * i + 1 : 5 * i + 5]]
        assert found == wanted


def test_calls_in_a_loop():
    x = torch.arange(4.0)
    wanted = [(20 * x + 10).tolist(), (8 * x + 4).tolist(), (200 * x + 100).tolist()]
    assert pods.run(2, ordered.loops) == [wanted] * 2


def test_calls_in_a_scan():
    x = torch.arange(8.0).reshape(4, 2)
    y = 2 * (x + torch.arange(4.0).reshape(4, 1)) + 1
    wanted = [(20 * x + 10).tolist(), y.tolist(), (200 * x + 100).tolist()]
    assert pods.run(2, ordered.scans) == [wanted] * 2


def test_a_thread_reads_beside_collectives():
    sums = [[2.0 + 2 * i] * 4 for i in range(40)]
    assert pods.run(2, ordered.reads_beside) == [([], sums)] * 2


def test_what_several_tensors_are_read_for():
    found, a, b = [0, 1, 3, 4], [0.0, 2.0, 4.0, 6.0], [2.0, 4.0, 6.0, 8.0]
    assert pods.run(2, ordered.reads_several) == [(found, a, b)] * 2


def test_a_compiled_function_of_one_rank():
    assert pods.run(2, ordered.compiles_alone) == [[0.0, 22.0, 44.0, 66.0]] * 2


def test_calls_of_two_threads():
    wanted = {(n, i): [2.0 * (10 * n + i)] * 3 for n in range(2) for i in range(5)}
    assert pods.run(2, ordered.in_threads) == [wanted] * 2


def test_calls_in_a_compiled_function():
    assert pods.run(2, ordered.compiles) == [[-27.0, 300.0] * 3] * 2


def test_one_rank_reads_alone():
    assert pods.run(2, ordered.reads_alone) == [[3.0, 30.0, 300.0]] * 2


def test_a_step_is_compiled_once():
    assert pods.run(2, ordered.repeats_steps) == [[0, 0]] * 2


def test_ids():
    assert pods.run(2, several_ranks.ids) == [
        (rank, 2, rank, 2, ["POD:0", "POD:1"], "xla:0") for rank in range(2)
    ]


def test_partitions():
    with pods.ranks(2) as ranks:
        for result, expected in ranks.run(pods.joined, several_ranks.sharded):
            assert torch.equal(result, expected)
