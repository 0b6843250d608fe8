"""torch.distributed.pipelining."""

import pytest
import runs


@pytest.mark.parametrize("one_f_one_b", [0, 1])
def test_losses_are_those_of_gloo(one_f_one_b):
    runs.same_losses("pipeline.py", f"--one-f-one-b={one_f_one_b}")
