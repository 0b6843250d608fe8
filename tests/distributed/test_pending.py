"""A call fails while calls of other groups are pending: right numbers or an error, and no wait."""

from __future__ import annotations

import effort
import pending
import pending_random
import pytest
import worlds

MISMATCH = "CollectiveMismatchError"
A_BATCH = 25
PROGRAMS = {3: 50, 4: 100}


def _nan(values):
    return all(x != x for x in values)


@pytest.mark.parametrize("reads", [False, True], ids=["sync", "read"])
@pytest.mark.parametrize("other", ["shape", "barrier"])
def test_a_failure_is_heard_where_the_graph_runs(other, reads):
    found = worlds.run(3, pending.found_before_it_comes, other, reads)
    (heard, value, again), finder, _ = found
    assert heard == MISMATCH and finder == MISMATCH
    assert _nan(value) and _nan(again)  # it is spoiled


def test_a_rank_that_goes_on_elsewhere():
    assert worlds.run(3, pending.goes_on_elsewhere) == [[MISMATCH], [MISMATCH] * 2, [MISMATCH] * 2]


def test_a_rank_that_comes_late_with_something():
    first, second, late, last = worlds.run(4, pending.comes_late_with_something)
    assert first == second == [MISMATCH]
    assert late[0] == MISMATCH and _nan(late[1])
    assert late[2] == MISMATCH and late[3] == [[5.0, 5.0]]
    assert last == [MISMATCH, MISMATCH, [[5.0, 5.0]]]


def test_two_failures_at_once():
    assert worlds.run(4, pending.two_at_once) == [[[MISMATCH]] * 3] * 4


@pytest.mark.parametrize(
    ("how", "error"), [("message", MISMATCH), ("waits later", "RanksDisagree")]
)
def test_what_a_helper_waits_for_fails(how, error):
    (heard, value), other, _ = worlds.run(3, pending.helper_fails, how)
    assert heard == [error]
    assert value == other == [3.0, 3.0]


@pytest.mark.parametrize("of_group", [False, True], ids=["xm", "group"])
def test_a_rank_that_loses_a_call_alone(of_group):
    found = worlds.run(2, pending.loses_alone, of_group)
    assert found == [[MISMATCH, [200.0, 200.0]]] * 2


def test_compiled_calls_of_groups_of_the_same_ranks():
    assert worlds.run(2, pending.crossed) == [[[3.0, 3.0]] * 4 + [MISMATCH] * 2] * 2


def test_compiled_calls_in_groups_made_anew():
    one = [[7.0, 7.0], [3.0, 3.0], MISMATCH, MISMATCH]
    expected = [*one, *one, *one[:2]]
    assert worlds.run(3, pending.compiled_again) == [expected, expected, [[7.0, 7.0]] * 3]


@pytest.mark.parametrize("who", [[0], [1, 2]])
def test_compiled_calls_on_some_ranks(who):
    assert worlds.run(3, pending.compiled_on_some, who) == [[[19.0, 19.0]] * 3] * 3


def test_a_barrier_against_a_compiled_call():
    found = worlds.run(3, pending.barrier_against_compiled)
    assert found == [[[7.0, 7.0], MISMATCH]] * 3


def test_a_compiled_call_whose_first_one_fails():
    found = worlds.run(2, pending.compiled_in_one_that_has_broken)
    assert found == [[MISMATCH] * 3 + [[3.0, 3.0]]] * 2


def test_a_failure_before_a_rank_has_begun_anew():
    assert worlds.run(3, pending.begins_late) == [[MISMATCH, [30.0, 30.0]]] * 3


@pytest.mark.parametrize("world", PROGRAMS)
def test_at_random(world):
    first = effort.SEED * 1_000_000
    end = first + PROGRAMS[world] * effort.TIMES
    with worlds.World(world) as ranks:
        for at in range(first, end, A_BATCH):
            seeds = range(at, min(at + A_BATCH, end))
            for wrong in ranks.run(pending_random.at_random, seeds, world, timeout_s=300.0):
                assert not wrong, wrong[0]


def test_the_programs_differ():
    plans = [pending_random.plan(seed, 4) for seed in range(300)]
    assert {one.how for one in plans} == {"shape", "barrier", "max", "nothing"}
    crossing = [
        one
        for one in plans
        if any(0 < len({*a} & {*b}) < len({*a} | {*b}) for a in one.groups for b in one.groups)
    ]
    assert len(crossing) > 200
    assert sum(one.pending for one in plans) > 200
