"""Calls that stay in the graph where ranks have to run the same programs, as on a TPU pod.

Such a pod refuses programs that differ, and a rank that runs one alone waits for ever.
"""

import re
import uuid

import agreed
import agreed_models
import pods
import pytest
import several_ranks
import staying
import torch

SIZES = (2, 3, 4)
_ENV = {"TORCH_XLA_CC_POD_PROGRAMS": "same"}


@pytest.fixture(scope="module", params=SIZES)
def ranks(request):
    """Ranks of a pod that takes one program only."""
    with pods.ranks(request.param, **_ENV) as started:

        def run(fn, *args, timeout_s=100.0):
            key = uuid.uuid4().hex
            return started.run(pods.joined, staying.at, key, fn, *args, timeout_s=timeout_s)

        run.size = request.param
        yield run


def test_a_step_is_one_program(ranks):
    found = ranks(agreed.counts, 4)
    for steps, _ in found:
        assert [ran for ran, _ in steps] == [1] * 4
        assert [compiled for _, compiled in steps][2:] == [0, 0]


def test_a_reduce_is_one_program_whichever_rank_is_its_root(ranks):
    steps = ranks.size + 3
    values = [rank + 1.0 for rank in range(ranks.size)]
    for step in range(steps):
        values[step % ranks.size] = sum(values)
    for rank, (found, x) in enumerate(ranks(agreed.reduces, steps)):
        assert [ran for ran, _ in found] == [1] * steps
        assert [compiled for _, compiled in found][2:] == [0] * (steps - 2)
        assert x == [values[rank]] * 7


def test_graphs_of_one_hash_are_two_programs(ranks):
    expected = (2.0 + 2.0) * 5 + sum((rank + 2.0 + 5.0) * 5 for rank in range(1, ranks.size))
    assert ranks(agreed.leaves_differ, 3) == [[[expected] * 3] * 3] * ranks.size


@pytest.mark.parametrize("loop", ["while", "scan"])
def test_a_rank_is_late_for_a_loop(ranks, loop):
    if ranks.size != 2:
        pytest.skip("it takes 5 s, and two ranks show it")
    total = sum(range(1, ranks.size + 1))
    expected = [total, total + 1, 10 * total * ranks.size**2, 100 * total]
    assert ranks(agreed.late_in_a_loop, loop) == [expected] * ranks.size


@pytest.mark.parametrize("dropout", [False, True])
def test_one_rank_reads_alone(ranks, dropout):
    found = ranks(agreed.reads_alone, ranks.size - 1, dropout)
    total = sum(range(2, ranks.size + 2))
    for rank, (alone, kept, y) in enumerate(found):
        assert (alone == kept) is (rank == ranks.size - 1)
        assert y == [(total + 1) * ranks.size**2] * 50
        assert set(kept) <= {0.0, total * 2.0}


@pytest.mark.parametrize("how", ["store", "polls", "gloo", "barrier", "object", "message"])
def test_one_rank_reads_and_the_others_wait_elsewhere(ranks, how):
    if ranks.size < 3:
        pytest.skip("two of its three ranks have parts of their own")
    for rank, (read, took) in enumerate(ranks(staying.reads_alone, how)):
        assert took < 40.0
        last = 3.0 * ranks.size / 3 + staying.ROUNDS - 1  # at least
        assert read[-1][0] >= last, rank


@pytest.mark.parametrize("seed", range(6))
def test_random_programs(ranks, seed):
    assert ranks(agreed.random_program, ranks.size, seed, 30) == [True] * ranks.size


@pytest.mark.parametrize("seed", range(3))
def test_random_programs_of_which_one_rank_reads_often(ranks, seed):
    assert ranks(agreed.random_program, ranks.size, seed, 70, True) == [True] * ranks.size


@pytest.mark.parametrize("readers", [(0,), (0, 1)])
def test_a_loop_that_some_ranks_read_and_none_steps(ranks, readers):
    """It compiles nothing new at a read, and what is pending does not grow with it."""
    if ranks.size == 2 and len(readers) == 2:
        pytest.skip("all of them")
    batches = 80
    found = ranks(agreed.validates, readers, batches)
    torch.manual_seed(0)
    layer = torch.nn.Linear(6, 3)
    with torch.no_grad():
        each = [
            sum(layer(torch.full((6,), rank + batch / 8.0)) for rank in range(ranks.size))
            for batch in range(batches)
        ]
    for rank, (read, total, compiled, held) in enumerate(found):
        assert torch.tensor(total) == pytest.approx(sum(each), rel=1e-4)
        assert len(read) == (batches if rank in readers else 0)
        for one, expected in zip(read, each, strict=False):
            assert one == pytest.approx(expected.tolist(), rel=1e-4, abs=1e-5)
        assert compiled <= 2
        assert held <= 24 or rank not in readers  # others may have run ahead


@pytest.mark.parametrize("seed", range(4))
def test_random_groups(ranks, seed):
    if ranks.size != 4:
        pytest.skip("of a mesh of two by two")
    assert ranks(agreed.random_groups, seed, 25, timeout_s=150.0) == [True] * 4


def test_a_rank_steps_while_another_waits_for_its_message(ranks):
    size = ranks.size
    for x, y, agree in ranks(agreed.steps_before_it_sends):
        assert x == [sum(range(1, size + 1))] * 2
        assert y == [sum(range(5, size + 5))] * 2
        assert agree


@pytest.mark.parametrize("calls", [0, 70])
def test_calls_of_some_ranks_run_when_they_are_made_for_a_while(ranks, calls):
    if ranks.size != 4:
        pytest.skip("of two groups")
    for (read, told, gave_up), ran, x in ranks(agreed.gives_up, calls):
        assert read == [6.0, 6.0]
        assert told == 1
        assert gave_up
        assert ran == (0 if calls else 5)  # three calls, and what is pending between them
        assert x == [6.0, 6.0]


def test_a_rank_that_writes_for_long_makes_nobody_give_up(ranks):
    total = sum(range(1, ranks.size + 1))
    assert ranks(agreed.writes_slowly, 13.0) == [([total] * 2, True)] * ranks.size


def test_more_calls_than_may_be_pending(ranks):
    if ranks.size != 2:
        pytest.skip("a thousand collectives in one program take minutes to compile on more")
    assert ranks(agreed.many, 1100, timeout_s=240.0) == [[2.0] * 2] * ranks.size


def test_a_rank_that_does_not_come():
    with pods.ranks(3, **_ENV) as started:
        for told, took in started.run(
            pods.joined, staying.at, "late", agreed.is_too_late, 4.0, 8.0
        ):
            assert re.search(r"waited for .* these ranks have made fewer: {0: 0}", told)
            assert took < 15.0


def test_a_rank_that_ends():
    with pods.ranks(3, **_ENV) as started:
        started.run(pods.joined, several_ranks.ids)
        died, *found = pods.outcomes(started, staying.at, "ends", agreed.ends)
    assert "3" in died
    for told, took in found:
        assert re.search(r"rank \d would run .* ranks \[0\] have ended", told)
        assert took < 10.0


def test_a_mode_sees_what_the_script_calls(ranks):
    """DistributedDataParallel's own test of its copies asks for it."""
    assert not {name for names in ranks(agreed.own_operators) for name in names} & {"clone"}


def test_ranks_that_leave_in_good_order():
    """Who still waits for a call of theirs is told at once, and not when the limit is over."""
    with pods.ranks(2, **_ENV) as started:
        started.run(pods.joined, several_ranks.ids)
        first, left = pods.outcomes(started, staying.at, "leave", agreed.leaves)
    read, told, took = first
    assert read == [3.0] * 2
    assert "ended" in told
    assert took < 15.0
    assert left == [3.0] * 2


def test_one_rank_compiles_a_function_while_calls_are_pending(ranks):
    total = sum(range(1, ranks.size + 1))
    for rank, (y, x, z) in enumerate(ranks(agreed.captures_alone)):
        expected = torch.tensor(3.0 * total)
        assert y == pytest.approx([float(expected.sin() if rank == 0 else expected)] * 3, rel=1e-5)
        assert x == [total * ranks.size] * 3
        assert z == [ranks.size] * 2


def test_what_a_rank_steps_alone_is_computed(ranks):
    total = sum(range(1, ranks.size + 1))
    for rank, (pending, x) in enumerate(ranks(agreed.steps_alone)):
        assert not pending or rank > 0
        assert x == [total * ranks.size**2] * 3


def _first_losses(size, batches):
    """Those of rank 0, in plain torch."""
    torch.manual_seed(0)
    first, last = torch.nn.Linear(6, 4), torch.nn.Linear(4, 2)
    losses = []
    for batch in range(batches):
        found = [first(agreed_models.micro_batch(rank, batch)) for rank in range(size)]
        mean = sum(x.mean(0) for x in found) / size
        losses.append(last(found[0] - mean).square().mean().item())
    return losses


def test_one_rank_prints_micro_batches_of_a_model_whose_layers_call(ranks):
    """A window may end in the middle of a backward pass, with buckets that only C++ holds."""
    (read, grads), *others = ranks(agreed_models.prints_micro_batches, 24, timeout_s=200.0)
    assert read == pytest.approx(_first_losses(ranks.size, 24), rel=1e-4)
    for _, same in others:
        for ours, theirs in zip(grads, same, strict=True):
            assert torch.tensor(ours) == pytest.approx(torch.tensor(theirs), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("syncs", [True, False])
def test_ranks_that_use_other_branches_of_a_model(ranks, syncs):
    model = agreed_models.Branches()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        optimizer.zero_grad()
        (sum(model.loss(rank, step) for rank in range(ranks.size)) / ranks.size).backward()
        optimizer.step()
    for found in ranks(agreed_models.uses_branches, 3, syncs):
        for ours, theirs in zip(found, model.parameters(), strict=True):
            assert torch.tensor(ours) == pytest.approx(theirs.detach(), rel=1e-5, abs=1e-6)


def test_one_rank_reads_what_is_written_through_views(ranks):
    whole = [torch.arange(24.0).reshape(4, 6) * (rank + 1) for rank in range(ranks.size)]
    total = sum(x[1] / 2 for x in whole)
    for x in whole:
        x[1] = total
        x.as_strided((2, 3), (6, 2), 0).add_(0.25)
    for x, (read, found, y) in zip(
        whole, ranks(agreed.reads_what_is_written_through_views), strict=True
    ):
        assert found == x.tolist()
        assert read in (None, x.sum().item())
        assert y == [ranks.size**2] * 2
