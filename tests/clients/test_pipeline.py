"""torch.distributed.pipelining."""

import pytest
import runs


@pytest.mark.parametrize(("one_f_one_b", "ranks"), [(0, 2), (1, 4)])
def test_losses_are_those_of_gloo(one_f_one_b, ranks):
    runs.same_losses("pipeline.py", f"--one-f-one-b={one_f_one_b}", ranks=ranks)
