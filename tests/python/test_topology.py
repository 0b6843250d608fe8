"""What torch_xla tells of a TPU's chips, and which target that is."""

import itertools
import random

import pytest

from torch_xla_cc._runtime import device


def chips(*sizes, first=(0, 0, 0), numbers=None):
    """As torch_xla lists devices: in any order, each with its number in its name."""
    places = [
        [at + start for at, start in zip(reversed(place), first, strict=False)]
        for place in itertools.product(*(range(size) for size in reversed(sizes)))
    ]
    numbers = numbers or range(len(places))
    listed = [
        {"name": f"TPU:{number}", "coords": [*place, 0, 0][:3], "core_on_chip": 0}
        for number, place in zip(numbers, places, strict=True)
    ]
    random.Random(1).shuffle(listed)
    return listed


@pytest.mark.parametrize(
    ("kind", "sizes", "name"),
    [
        ("TPU v5 lite", (4, 8), "tpu:v5e:4x8"),
        ("TPU v6 lite", (2, 4), "tpu:v6e:2x4"),
        ("TPU v5", (2, 2, 4), "tpu:v5p:2x2x4"),
        ("TPU v5p", (4, 4, 4), "tpu:v5p:4x4x4"),
        ("TPU v4", (2, 2, 1), "tpu:v4:2x2x1"),
    ],
)
def test_a_slice(kind, sizes, name):
    ranks = len(chips(*sizes))
    assert device.tpu(kind, chips(*sizes), ranks) == (name, [])
    # A part of a larger one.
    assert device.tpu(kind, chips(*sizes, first=(4, 2, 8)), ranks) == (name, [])


def test_ranks_in_another_order():
    name, places = device.tpu("TPU v5 lite", chips(2, 2, numbers=[3, 0, 1, 2]), 4)
    assert (name, places) == ("tpu:v5e:2x2", [1, 2, 3, 0])


def test_where_no_place_is_known():
    assert device.tpu("TPU v9", chips(2, 2), 4) == ("tpu", [])
    assert device.tpu("TPU v5 lite", chips(2, 2)[:3], 3) == ("tpu:v5e", [])  # no full box
    assert device.tpu("TPU v5 lite", chips(2, 2), 1) == ("tpu:v5e", [])  # alone, so far
    untold = [{"name": "TPU:0"}, {"name": "TPU:1"}]
    assert device.tpu("TPU v5 lite", untold, 2) == ("tpu:v5e", [])
    assert device.tpu("TPU v5 lite", [*chips(2, 1)[:1], untold[1]], 2) == ("tpu:v5e", [])
    two_cores = [*chips(2, 2), *chips(2, 2, numbers=[4, 5, 6, 7])]
    assert device.tpu("TPU v4", two_cores, 8) == ("tpu:v4", [])
