"""DistributedDataParallel."""

import pytest
import runs


def test_losses_are_those_of_gloo():
    output = runs.same_losses("ddp.py", ranks=4).output
    assert output.count("│ C++ ") == 1  # the reducer's all_reduce, in the table


# bfloat16 is summed in another order than gloo does, and rounded at other places.
@pytest.mark.parametrize(
    ("options", "rel"),
    [
        ("--accumulate=2 --bucket-kb=1", 1e-5),
        ("--static=1 --compress=1", 1e-3),
        ("--unused=1", 1e-5),
        ("--uneven=1", 1e-5),
    ],
)
def test_options(options, rel):
    runs.same_losses("ddp.py", *options.split(), rel=rel)
