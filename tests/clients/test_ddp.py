"""DistributedDataParallel."""

import runs


def test_losses_are_those_of_gloo():
    runs.same_losses("ddp.py")
