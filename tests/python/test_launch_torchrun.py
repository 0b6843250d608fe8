"""launch in a process that torchrun started for one device of several."""

import pytest
import torch

import torch_xla_cc
from torch_xla_cc._runtime.private import pjrt, runtime


@pytest.fixture
def one_of_four(monkeypatch):
    """As rank 2 of 4 on a device other than CPU; how torch_xla was set up, in a list."""
    world, set_up = [1], []

    def initialize(rank, size):
        set_up.append((rank, size))
        world[0] = size

    for name, value in {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.distributed, "is_torchelastic_launched", lambda: True)
    monkeypatch.setattr(pjrt, "initialize_multiprocess", initialize)
    monkeypatch.setattr(runtime, "device_type", lambda: "TPU")
    monkeypatch.setattr(runtime, "is_spmd", lambda: False)
    monkeypatch.setattr(runtime, "world_size", lambda: world[0])
    monkeypatch.setattr(runtime, "global_ordinal", lambda: 2)
    monkeypatch.setattr(runtime, "_init_world_size_ordinal", lambda: None)
    return set_up


def test_all_ranks_are_one_world(one_of_four):
    assert torch_xla_cc.launch(lambda rank, x: (rank, x, runtime.world_size()), ("x",)) == [
        (2, "x", 4)
    ]
    assert one_of_four == [(2, 4)]


def test_a_world_that_is_smaller_than_the_job(one_of_four, monkeypatch):
    monkeypatch.setattr(pjrt, "initialize_multiprocess", lambda rank, size: None)
    with pytest.raises(RuntimeError, match=r"launch: 4 ranks, but torch_xla's runtime has 1"):
        torch_xla_cc.launch(print)
