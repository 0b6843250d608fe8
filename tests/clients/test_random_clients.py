"""Random models, trained by clients in data parallel: what XLA shows is what gloo shows."""

import collections
import itertools

import client_engines
import effort
import processes
import pytest
import random_clients
import random_models

RANKS = 4  # of which a recipe takes as many as it says
CASES = 3  # of each client
OF_A_PROCESS = 60  # recipes: DeepSpeed's stage 3 keeps its groups, whose threads of gloo poll

_numbers = itertools.count()
_how = collections.Counter()


def check(recipe):
    """Returns whether both refuse it."""
    number = next(_numbers)
    if number % OF_A_PROCESS == 0:
        processes.close_all()
    by_rank = processes.run(RANKS, random_clients.both, recipe, number, timeout_s=400)
    refused = False
    wrong = []
    for rank, ((cpu, by_gloo), (xla, ours)) in enumerate(by_rank[: recipe.size]):
        failed = [error.split(":")[0] for error in (by_gloo, ours)]
        refused |= bool(by_gloo)
        if failed[0] != failed[1]:
            wrong.append(f"rank {rank}: {ours or 'no error'}\nBy gloo {by_gloo or 'no error'}")
        elif not wrong:
            wrong += random_clients.differences(recipe, rank, cpu, xla, bool(by_gloo))
    assert not wrong, f"{recipe}:\n" + "\n".join(wrong[:4])
    return refused


def test_deepspeed_in_a_world_after_a_smaller_one():
    """It numbers parameters by process: ranks of the smaller one went on, and others began."""
    options = {"precision": "", "bucket": 500, "overlap": False, "contiguous": False}
    options |= {"stage": 3, "persistent": 0}
    model = random_models.Model(
        inputs=3, layers=(random_models.Layer("dense", 3),), outputs=3, words=0, tied=False, seed=0
    )
    for size in (2, 3):
        rows = (1,) * size
        assert not check(random_clients.Recipe("deepspeed", size, model, rows, options))


@pytest.mark.parametrize("client", client_engines.KINDS)
def test_what_xla_shows_is_what_gloo_shows(client):
    """TORCH_XLA_CC_SEED=N, which is printed above the tests, makes the same recipes again."""
    how = collections.Counter()

    @effort.for_each(CASES, random_clients.recipes(client))
    def run(recipe):
        how[check(recipe)] += 1

    run()
    print(f"{client}: {how.total()} recipes, of which gloo refused {how[True]}")
    assert how[True] <= 2 + how.total() / 2
