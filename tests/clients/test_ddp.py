"""DistributedDataParallel."""

import pytest
import runs


def test_losses_are_those_of_gloo():
    runs.same_losses("ddp.py")


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
    runs.same_losses("ddp.py", *options.split(), rel=rel, steps=8)


def test_calls_of_the_reducer_have_a_place():
    output = runs.run("ddp.py", "--steps=1", "--bucket-kb=1").output
    assert output.count("C++") == 2  # a bucket each
