"""ZeroRedundancyOptimizer."""

import runs


def test_losses_are_those_of_gloo():
    runs.same_losses("zero_optimizer.py", ranks=4)
