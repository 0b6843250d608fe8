"""Ranks of torch.distributed need not be numbered as devices are: TPUs are by their places."""

import pods
import pytest
import renumbered

RANKS = 4


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1), (2, 0, 1), (1, 0)])
def test_each_rank_has_its_own_part(order):
    """The last two are of a part of the pod."""
    pods.run(RANKS, renumbered.run, order)


def test_a_device_of_two_ranks_is_refused():
    with pods.ranks(2) as ranks:
        for said in ranks.run(pods.joined, renumbered.twice):
            assert "ranks [0, 1] of the group all use device 0 of 2" in said
