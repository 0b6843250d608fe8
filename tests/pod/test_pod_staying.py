"""Calls of torch.distributed on the pod stay in the graph; what runs them, and when."""

import uuid

import pods
import pytest
import staying

RANKS = 3
SLACK_S = 20.0  # of rounds in which ranks wait for each other


def run(size, fn, *args, **options):
    return pods.run(size, staying.at, uuid.uuid4().hex, fn, *args, **options)


def test_calls_run_when_they_are_read():
    found = run(RANKS, staying.runs_once)
    for rank, (calling, reading, (x, gathered, parts)) in enumerate(found):
        assert calling == 0
        assert 1 <= reading <= 3  # one for what is read first, which has all calls
        assert x == ([18.0] * 3 if rank == 1 else [6.0] * 3)
        assert gathered == [6.0] * 9
        if rank == 0:
            assert parts == [[6.0] * 3] * RANKS


@pytest.mark.parametrize("how", ["store", "polls", "gloo", "barrier", "object", "message"])
def test_one_rank_reads_and_the_others_wait_elsewhere(how):
    found = run(RANKS, staying.reads_alone, how)
    for rank, (read, took) in enumerate(found):
        assert took < SLACK_S
        expected = []
        for i in range(staying.ROUNDS):
            if rank == 1:
                expected.append([3.0 + 3 * i] * 3)
            if how == "object":
                expected.append([i])
            if how == "message" and rank == 0:
                expected.append([i + 1.0] * 2)
        last = 3.0 + 3 * (staying.ROUNDS - 1) + 1
        assert read == [*expected, [last * RANKS] * 3]


@pytest.mark.parametrize("how", ["barrier", "group", "splits", "messages", "asks", "end"])
def test_what_is_pending_runs_before_a_rank_waits(how):
    """Though no rank waits for it, which would have it run."""
    for rank, (ran, x) in enumerate(run(RANKS, staying.waits_for, how)):
        if how in ("messages", "group") and rank == 2:  # which has no part in it
            assert ran == 0
        else:
            assert ran >= 1
        assert x == [18.0] * 2


def test_a_slow_rank_is_left_alone():
    rounds = 24  # of 0.6 s: for longer than others wait for one that does not come to run it
    for (executed, compiled), x in run(2, staying.is_slow, rounds, timeout_s=120):
        assert executed == rounds - 3
        assert compiled == 0
        assert x == pytest.approx([1.0] * 2, rel=1e-4)


def test_who_waits_for_a_message_has_called_more():
    (x, message), (other, _) = run(2, staying.waits_with_more)
    assert x == other == [6.0] * 2
    assert message == [4.0] * 2


def test_a_group_is_made_while_one_reads():
    found = run(RANKS, staying.makes_a_group)
    assert found == [(None, [12.0] * 2), (None, [6.0] * 2), ([6.0] * 2, [12.0] * 2)]


def test_the_end_of_a_world_runs_what_is_pending():
    assert run(RANKS, staying.ends) == [None, [6.0] * 2, [6.0] * 2]


@pytest.mark.parametrize("seed", range(8))
def test_ranks_cut_what_they_have_where_they_like(seed):
    found = run(RANKS, staying.runs_script, seed, "xla", timeout_s=120)
    assert found == run(RANKS, staying.runs_script, seed, "cpu")


@pytest.mark.parametrize("how", ["plain", "sync", "zero", "adapter", "zero, adapter"])
def test_a_step_is_one_program(how):
    steps = 8
    found = run(RANKS, staying.steps, how, steps)
    for (executed, compiled), weights in found:
        assert executed <= (steps - 3) + (how == "sync")
        assert compiled == 0
        assert weights == found[0][1]


def test_a_step_that_has_failed():
    assert run(RANKS, staying.fails_in_a_step) == [(1, [1.0 - 9] * 2)] * RANKS


def test_a_graph_does_not_grow_without_end():
    calls = 2500
    for ran, value in run(2, staying.makes_many_calls, calls, timeout_s=200):
        assert ran == calls // 1000
        assert value == calls + 1


def test_what_differs_among_those_that_are_pending():
    with pods.ranks(RANKS) as ranks:
        for error in ranks.run(pods.joined, staying.at, uuid.uuid4().hex, staying.differ):
            assert "the ranks of group [0,1,2] run programs of different collectives" in error
            assert "rank 1 has all-gather f32[12]" in error


def test_groups_of_the_same_ranks():
    for found in run(2, staying.in_twins, False):
        assert found == [[3.0] * 3, [30.0] * 3]
    with pods.ranks(2) as ranks:
        for error in ranks.run(pods.joined, staying.at, uuid.uuid4().hex, staying.in_twins, True):
            assert "run programs of different collectives" in error
            assert error.count("in group") == 2


def test_a_rank_captures_while_others_wait():
    for found, wanted in run(2, staying.compiles, timeout_s=120):
        for step, step_wanted in zip(found, wanted, strict=True):
            assert step == pytest.approx(step_wanted, rel=1e-4)


def test_shapes_while_a_thread_runs_what_is_pending():
    assert run(2, staying.asks_for_shapes) == ["", ""]


@pytest.mark.parametrize("how", ["thread", "polls"])
def test_tensors_are_used_all_the_time(how):
    for found in run(2, staying.uses_tensors, how):
        assert found == [3.0] * 3


def test_a_rank_is_later_than_its_group_waits():
    limit_s, late_s = 3.0, 6.0
    with pods.ranks(RANKS) as ranks:
        late = staying.at, uuid.uuid4().hex, staying.is_late, limit_s, late_s
        for first, error in ranks.run(pods.joined, *late):
            assert first == [3.0] * 4
            assert "the time limit of a group in it is 3 s" in error
            assert "rank 2 has begun 1 collectives, and has ended them" in error


def test_a_thread_that_waits_now_and_then():
    rounds = 15
    value = 0.0
    total = [rank + 1.0 for rank in range(RANKS)]
    for i in range(rounds):
        value = sum(total) / 2 + i
        total = [value] * RANKS
    for found in run(RANKS, staying.wakes_often, rounds, timeout_s=120):
        assert found == [pytest.approx(value)] * 8


def test_threads_of_a_rank():
    found = run(RANKS, staying.calls_in_threads)
    assert found == [([2.0] * 4, [float(i) for _ in range(5) for i in range(4)])] * RANKS


def test_a_run_at_each_call():
    with pods.ranks(RANKS, TORCH_XLA_CC_CALLS="each") as ranks:
        for ran, error in ranks.run(pods.joined, staying.at, uuid.uuid4().hex, staying.each):
            assert ran == 2
            assert "broadcast" in error
            assert "all_reduce" in error


def test_a_setting_that_is_none():
    with pods.ranks(2, TORCH_XLA_CC_CALLS="often") as ranks:
        for error in ranks.run(pods.joined, staying.at, uuid.uuid4().hex, staying.refused):
            assert "TORCH_XLA_CC_CALLS = 'often', but it must be one of" in error
